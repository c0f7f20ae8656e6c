"""The ablation of a program inside its training process: its loop with parts taken out."""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from traceprobe.capture.ablation_plan import AblationPlan, RankTrials, Shortfall
from traceprobe.capture.batch_feed import feed
from traceprobe.capture.hardware import collect_environment, world_size
from traceprobe.capture.oracle.blocks import (
    LEAD_IN,
    Blocks,
    Condition,
    Unavailable,
    interleaved,
    warm_up,
)
from traceprobe.capture.oracle.busy_time import BUSY_STEPS, BusyTime, busy_time
from traceprobe.capture.oracle.communication import Replicas, instances
from traceprobe.capture.oracle.fused_optimizer import fused
from traceprobe.capture.oracle.kept_batches import THERE, KeptBatches
from traceprobe.capture.oracle.ranks import agreed
from traceprobe.capture.oracle.rare_steps import NONE_RARE, regular_means
from traceprobe.capture.oracle.resident import ResidentBatches
from traceprobe.capture.progress import DONE, refuse, report_state

_BARE = ("synthetic-no-comm", "synthetic-device", "synthetic-host", "full-no-comm", "full")
"""Variants with the least in them first."""


class ProgramAblation:
    """Takes a loop through its trials; `before_step` says whether it goes on.

    Args:
        plan: number and length of the trials.
    """

    def __init__(self, plan: AblationPlan) -> None:
        self._plan = plan
        self._report = partial(report_state, plan.folder)
        self._described: dict[str, object] = {}
        self._batches = KeptBatches()
        self._made = Blocks()
        self._steps = self._warmed = 0
        self._process = os.getpid()
        self._running: Generator[None, None, None] | None = self._run()
        feed.source = self._batches
        atexit.register(self.close)

    phases: None = None
    """Its steps have no phases."""

    def memory(self, model: object, optimizer: object) -> None:
        """What memory is for does not matter here."""

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload, for the results."""
        self._described.update(described)

    def before_step(self, number: int) -> bool:
        """Iteration `number` is about to begin; False where all trials are done."""
        if os.getpid() != self._process or _capturing():
            return True
        if self._running is None:
            return False
        self._steps = number
        self._batches.step()
        try:
            next(self._running)
        except StopIteration:
            self._restore()
            return False
        except Exception as error:  # of ours: the program must not train on with parts taken out
            self._restore()
            refuse(self._plan.folder, f"the trials failed ({type(error).__name__}: {error})")
        return True

    def close(self) -> None:
        """The program ends its loop: before its trials are done, where they still go on."""
        if self._running is not None and os.getpid() == self._process:
            Shortfall(self._steps, self._needed).save(Path(self._plan.folder))
            self._restore()

    def _restore(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()  # leaves the condition that holds
        feed.source = None
        self._batches.end()
        atexit.unregister(self.close)

    def _run(self) -> Generator[None, None, None]:
        self._report("warming up")
        pace = yield from warm_up(self._plan.warmup)
        self._batches.kept()
        self._warmed, period = self._steps, agreed(pace.period)
        self._replicas = Replicas()
        conditions = self._conditions()
        made = yield from interleaved(
            conditions,
            self._plan.count,
            self._plan.seconds,
            period,
            self._report,
            self._made,
        )
        self._report("measuring the GPU")
        known = {condition.name: condition for condition in conditions}
        bare = next(name for name in _BARE if name in made.steps)
        busy = yield from busy_time(known[bare].hold(), self._plan.folder, period)
        self._replicas.reunite()
        self._finish(made, busy)

    def _conditions(self) -> list[Condition]:
        """The variants of every program; those that it lacks are found out by trying."""
        batches, replicas = self._batches, self._replicas
        resident = ResidentBatches(batches.batches)
        turn = max(batches.workers, 1)

        @contextmanager
        def from_host() -> Iterator[None]:
            if batches.on_device:
                raise Unavailable(THERE)
            with batches.again():
                yield

        @contextmanager
        def from_device() -> Iterator[None]:
            with batches.again():
                if batches.on_device:
                    yield
                else:
                    with resident.hold():
                        yield

        @contextmanager
        def bare_no_comm() -> Iterator[None]:
            replicas.check()
            on_device = "synthetic-device" in self._made.steps
            with from_device() if on_device else from_host(), replicas.without_synchronization():
                yield

        import torch

        optimizers = instances(torch.optim.Optimizer)
        # Whole turns of workers that deliver in turn, after what they have ready.
        loaded = partial(Condition, turn=turn, lead_in=max(LEAD_IN, batches.steps_ahead))
        return [
            loaded("io", batches.alone, pace=batches.pull),
            loaded("full", nullcontext),
            Condition("synthetic-host", from_host),
            Condition("synthetic-device", from_device),
            loaded("full-no-comm", replicas.without_synchronization),
            Condition("synthetic-no-comm", bare_no_comm),
            loaded("full-fused", lambda: fused(optimizers)),
        ]

    @property
    def _needed(self) -> int | None:
        """Steps that the program has to make for all trials, as soon as that is known."""
        return None if self._made.wanted is None else self._warmed + self._made.wanted + BUSY_STEPS

    def _finish(self, made: Blocks, busy: BusyTime) -> None:
        seconds = {name: [b.seconds for b in made.of(name)] for name in made.steps}
        steps, absent = dict(made.steps), dict(made.absent)
        regular = regular_means([(block.first, block.step_s) for block in made.of("full")])
        if regular is None:
            absent["full-regular"] = NONE_RARE
        else:
            steps["full-regular"] = steps["full"]
            seconds["full-regular"] = [mean * steps["full"] for mean in regular]
        samples = self._batches.samples_per_step
        guessed = {} if samples is None else {"samples_per_step": samples * world_size()}
        RankTrials(
            seconds=seconds,
            steps=steps,
            absent=absent,
            busy_ns=busy.ns,
            collectives=busy.collectives,
            workload={**self._plan.workload, **guessed, **self._described},
            **collect_environment(),
        ).save(Path(self._plan.folder))
        self._report(DONE)


def _capturing() -> bool:
    """Whether the step becomes part of a CUDA graph, where nothing may be waited for."""
    import torch

    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

"""The ablation of a program inside its training process: its loop with parts taken out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.machine.device import computes
from traceprobe.capture.machine.hardware import collect_environment, world_size
from traceprobe.capture.oracle.ablation_plan import AblationPlan, RankTrials
from traceprobe.capture.oracle.blocks import (
    LEAD_IN,
    Blocks,
    Condition,
    Unavailable,
    foreseen_steps,
    interleaved,
    warm_up,
)
from traceprobe.capture.oracle.busy_time import BUSY_STEPS, BusyTime, busy_time
from traceprobe.capture.oracle.communication import communication
from traceprobe.capture.oracle.fused_optimizer import fused
from traceprobe.capture.oracle.instances import instances
from traceprobe.capture.oracle.kept_batches import THERE, KeptBatches
from traceprobe.capture.oracle.ranks import agreed
from traceprobe.capture.oracle.rare_steps import NONE_RARE, regular_means
from traceprobe.capture.oracle.resident import ResidentBatches
from traceprobe.capture.oracle.trial_session import TrialSession
from traceprobe.capture.process.progress import DONE

KEEPS_UP = 0.9
"""Time that a loader may take for a batch, in steps without it, and never be waited for."""
_BARE = ("synthetic-no-comm", "synthetic-device", "synthetic-host", "full-no-comm", "full")
"""Variants with the least in them first."""
_EVERYWHERE, _ON_RANKS = 3, 2
"""Variants in which a program makes steps, that most have, and that those with several ranks have;
one more has the batches on a GPU."""


class ProgramAblation(TrialSession):
    """Takes a loop through its trials, each without some part."""

    def __init__(self, plan: AblationPlan, *, updates_counted: bool = False) -> None:
        super().__init__(plan, updates_counted=updates_counted)
        self._plan = plan
        self._batches = KeptBatches()
        self._ranks = world_size()
        """Where the program ends before its trials, its group may have ended before."""
        feed.source = self._batches

    def _step_ends(self) -> None:
        self._batches.step()

    def _give_back(self) -> None:
        feed.source = None
        self._batches.end()

    def _run(self) -> Generator[None, None, None]:
        self._report("warming up")
        pace = yield from warm_up(self._plan.warmup)
        self._batches.kept()
        period = agreed(pace.period)
        self._communication = communication()
        conditions = self._conditions()
        made = yield from interleaved(
            conditions,
            self._plan.count,
            self._plan.seconds,
            period,
            self._report,
            self._made,
        )
        if computes():
            self._report("measuring the GPU")
        known = {condition.name: condition for condition in conditions}
        bare = next(name for name in _BARE if name in made.steps)
        busy = yield from busy_time(known[bare].hold(), self._plan.folder, period)
        self._communication.reunite()
        self._finish(made, busy)

    def _conditions(self) -> list[Condition]:
        """The variants of every program; those that it lacks are found out by trying."""
        batches, sent = self._batches, self._communication
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
            sent.check()
            on_device = "synthetic-device" in self._made.steps
            with from_device() if on_device else from_host(), sent.taken_out():
                yield

        import torch

        optimizers = instances(torch.optim.Optimizer)

        @contextmanager
        def loaded_fused() -> Iterator[None]:
            with batches.loading(), fused(optimizers):
                yield

        @contextmanager
        def loaded_no_comm() -> Iterator[None]:
            with batches.loading(), sent.taken_out():
                yield

        def caught_up() -> bool:
            return batches.waited or not self._lags()

        # Whole turns of workers that deliver in turn, after what they have ready.
        lead_in = max(LEAD_IN, batches.steps_ahead)
        loaded = partial(Condition, turn=turn, lead_in=lead_in, caught_up=caught_up)
        return [
            loaded("io", batches.alone, pace=batches.pull),
            loaded("full", batches.loading),
            Condition("synthetic-host", from_host),
            Condition("synthetic-device", from_device),
            loaded("full-no-comm", loaded_no_comm),
            Condition("synthetic-no-comm", bare_no_comm),
            loaded("full-fused", loaded_fused),
        ]

    def _trials_take(self, step_s: float | None) -> int:
        plan, wanted = self._plan, self._made.wanted
        if wanted is None:
            trained = _EVERYWHERE + int(computes()) + _ON_RANKS * (self._ranks > 1)
            wanted = foreseen_steps(trained, plan.count, plan.seconds, step_s)
        return wanted + BUSY_STEPS

    def _lags(self) -> bool:
        """Whether the loader alone is hardly faster than the loop without it, or slower.

        Then its queue is empty in the run, but full where the loop did without it for some steps.
        """
        alone, bare = (self._made.paces.get(name) for name in ("io", "synthetic-host"))
        return alone is not None and bare is not None and alone > KEEPS_UP * bare

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
        guessed = {} if samples is None else {"samples_per_step": samples * self._ranks}
        RankTrials(
            seconds=seconds,
            steps=steps,
            absent=absent,
            busy_ns=busy.ns,
            collectives=busy.collectives,
            workload={**self._workload, **guessed, **self._described},
            **collect_environment(),
        ).save(self._folder)
        self._report(DONE)

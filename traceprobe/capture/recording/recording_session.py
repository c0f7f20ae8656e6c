"""The recording of one process: what its steps are for, one after the other, and the sidecar.

The stages are one function that is resumed before every step of the loop, `_stages`. Blocks without
the profiler time the loop as it is: the device is synchronised only at their two ends, so that the
host may run ahead as it does in training.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceprobe.capture.loader.loader_watch import loaders
from traceprobe.capture.loader.step_waits import StepWaits
from traceprobe.capture.machine.cpu_readings import cpu_between, read_cpu
from traceprobe.capture.machine.device import computes, peak_memory, synchronize, watch_peak_memory
from traceprobe.capture.machine.device_clock import DeviceClock
from traceprobe.capture.machine.hardware import collect_environment
from traceprobe.capture.machine.spin_kernel import spin_mhz
from traceprobe.capture.memory.memory_measurement import MemoryMeasurement
from traceprobe.capture.owners.kernel_owners import kernel_owners
from traceprobe.capture.process.progress import (
    DONE,
    NAMING,
    current_rank,
    ended_early,
    report_state,
    write_result,
)
from traceprobe.capture.process.rank_votes import rank_votes
from traceprobe.capture.profiler.compiler_watch import compiler_watch
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.profiler.profiler_backend import Backend, profiler_backend
from traceprobe.capture.recording.block_lengths import BlockLengths
from traceprobe.capture.recording.calibration_facts import calibration, throughput
from traceprobe.capture.recording.name_stage import NameStage
from traceprobe.capture.recording.recording_plan import RecordingPlan, sidecar_name
from traceprobe.capture.recording.timed_block import (
    TimedBlock,
    has_long_steps,
    same_clock,
    same_pace,
    shorter_with_profiler,
    slowed_by_profiler,
)
from traceprobe.capture.recording.warm_up import WarmUp

if TYPE_CHECKING:
    import torch

Stage = Generator[bool, None, None]
"""Gives True before every step that is to be made."""
BlockStage = Generator[bool, None, TimedBlock]
WATCHED_AGAIN = 6
"""Lengths of an unprofiled block in which a period is looked for after long steps were seen."""


class RecordingSession:
    """Steps through a plan. `before_step` says whether the loop goes on.

    Args:
        updates_counted: whether every step ends with one of an optimizer.
    """

    def __init__(
        self,
        plan: RecordingPlan,
        profiler: Backend | None = None,
        *,
        updates_counted: bool = False,
    ) -> None:
        self.plan = plan
        self._report = partial(report_state, plan.folder)
        self.rank = current_rank()
        self._profiler = profiler or profiler_backend(plan, self.rank)
        other_profilers.watch()
        self._process = os.getpid()
        self._stage = self._stages()
        self._made = 0
        self._votes = rank_votes(plan.folder, self.rank)
        self._warm_up = WarmUp(plan, self._votes)
        self._blocks: list[TimedBlock] = []
        self._timed: TimedBlock | None = None
        self._profiling = self._finished = self._slowed = False
        self._clock: DeviceClock | None = None
        self._lengths = BlockLengths(plan)
        self._owners: dict[str, Any] | None = None
        self._peak_memory: int | None = None
        self._described: dict[str, object] = {}
        self._memory: MemoryMeasurement | None = None
        self._measures_memory = False
        self._names = NameStage(plan, self.rank, updates_counted=updates_counted)
        self._updates_counted = updates_counted
        self._waits = StepWaits(marked=plan.backend == "nsys") if updates_counted else None
        if self._waits is not None:
            self._waits.begin()
        self.discards = False
        """Whether the step after this one is made only to use up what a loader has ready."""
        self.drains = False
        """Whether what a loader has ready is to be thrown away before the step that begins.

        Queues fill up while the first steps compile and the profiler starts and ends. A
        measurement that begins with full ones sees a faster loader than the run has.
        """
        self.phases: Callable[[str], Any] | None = None
        """Who is told of phases instead of the profiler, while the memory of a step is watched."""

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload, for the sidecar."""
        self._described.update(described)

    def memory(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What the memory of the loop is for."""
        self._memory = MemoryMeasurement(model, optimizer, simulate=self.plan.simulate)

    def after_step(self, batch: Any) -> Iterator[Any]:
        """Batches of steps that do not count, after a step was given `batch`.

        One step after the warm-up has its memory measured; what is simulated follows it.
        """
        if self._memory is None or not self._measures_memory:
            return
        self._measures_memory = False
        self.phases = None
        self._memory.end(batch)
        for fake, phases in self._memory.simulated(batch):
            self.phases = phases
            yield fake
        self.phases = None

    def waited(self, ns: int, others_ns: int = 0) -> None:
        """Time in the loader's `next` for the batches of the step that ends, and in others'."""
        if self._timed is not None:
            self._timed.waits.append(ns)
            self._timed.other_waits_ns += others_ns

    def before_step(self, number: int) -> bool:
        """Whether step `number` is to be made, after what is due before it is done."""
        self._made = number + 1
        self.drains = self.discards = False
        waited = None if self._waits is None else self._waits.step()
        if waited is not None:
            self.waited(*waited)
        loaders.step()
        return next(self._stage, False)

    def _stages(self) -> Stage:
        atexit.register(self.close)
        self._report("warming up")
        loaders.begin()  # batches that were read before the first step are of no step
        yield from self._warm_up.watch(self.plan.warmup, synchronize)
        if self._memory is not None:
            self._measures_memory = True
            self._memory.begin()
            self.phases = self._memory.phase
            yield True
        yield from self._alternate()
        self._finish()
        yield from self._names.steps()
        # A rank that fails on its way out takes the others along, whatever they still write.
        self._votes.cast(0)

    def _alternate(self) -> Stage:
        """Blocks without, with and without the profiler, until those around it are alike."""
        plan = self.plan
        self._clock = DeviceClock.start()
        self._measure_lengths()
        before = yield from self._unprofiled(plan.calibrate_before)
        for repeat in range(plan.most_repeats + 1):
            profiled = yield from self._profiled()
            after = yield from self._unprofiled(plan.calibrate_after)
            alike = same_pace(before, after) and same_clock([before, profiled, after])
            alike = alike and not shorter_with_profiler(before, profiled, after)
            self._slowed = not repeat and slowed_by_profiler(before, profiled, after)
            votes = self._votes.cast(int(alike or self._slowed))
            if votes is None or all(votes) or repeat == plan.most_repeats:
                return
            votes = self._votes.cast(int(has_long_steps(before) or has_long_steps(after)))
            before = after
            if votes is not None and any(votes):
                self._report("warming up")
                least = WATCHED_AGAIN * plan.calibrate_before
                yield from self._warm_up.watch(min(least, plan.most_warmup), synchronize)
                self._measure_lengths()
                before = yield from self._unprofiled(plan.calibrate_before)

    def _measure_lengths(self) -> None:
        """Blocks for the loop as the warm-up found it, the same on all ranks."""
        paces = self._votes.cast(round(1e3 * self._warm_up.pace_ms))
        pace_ms = max(paces) / 1e3 if paces is not None and computes() else None
        # Who cannot throw batches away uses them up.
        ahead = loaders.steps_ahead if self._updates_counted else 0
        aheads = self._votes.cast(ahead) or [ahead]
        self._lengths = BlockLengths(self.plan, self._warm_up.period, pace_ms, max(aheads))

    def _unprofiled(self, planned: int) -> BlockStage:
        self._report("calibrating")
        first = not self._blocks
        # Who reads all processes of a machine takes so long that a loader gets ahead meanwhile.
        root = self.plan.root or self._process
        cpu = read_cpu(root)
        self.drains = True
        for _ in range(self._lengths.lead_in(planned, self._warm_up.steps if first else 0)):
            yield True
        synchronize()
        if first:
            watch_peak_memory()
            loaders.begin()
        steps = self._lengths.unprofiled(planned)
        self._timed = block = TimedBlock(profiled=False)
        block.mark()
        for made in range(1, steps + 1):
            yield True
            if made == steps:
                synchronize()
            block.mark()
        block.cpu = cpu_between(cpu, read_cpu(root))
        self._timed = None
        if first:
            loaders.end(self.plan.folder, steps)
            self._peak_memory = peak_memory()
        return self._ended(block)

    def _profiled(self) -> BlockStage:
        self._report("profiling")
        other_profilers.claim(self.plan.folder, self.plan.backend)
        active = self._lengths.active
        with other_profilers.ours():
            self._profiler.start(active, self._lengths.settle)
        self._profiling = True
        self.drains = True
        for left in reversed(range(self._lengths.ready)):
            self.discards = left > 0
            yield True
            with other_profilers.ours():
                self._profiler.step()
        block = TimedBlock(profiled=True)
        block.mark()
        yield True
        for _ in range(self.plan.settle + active):
            with other_profilers.ours():
                self._profiler.step()
            block.mark()
            yield True
        synchronize()
        block.mark()
        with other_profilers.ours():
            self._profiler.stop()
        self._profiling = False
        # As of now: replays of graphs are counted up to the end of what the trace holds.
        self._owners = kernel_owners() if self.plan.backend == "torch" else None
        return self._ended(block)

    def _ended(self, block: TimedBlock) -> TimedBlock:
        """A block that is complete; the device is at rest."""
        if self._clock is not None:
            read = self._clock.between(block.marks[0], block.marks[-1])
            spin = spin_mhz()
            block.clock = {**read, **({} if spin is None else {"spin_mhz": spin})}
        self._blocks.append(block)
        return block

    def _finish(self) -> None:
        self._report("writing the trace")
        if self._waits is not None:
            self._waits.end()
        if self._clock is not None:
            self._clock.stop()
        memory = None if self._memory is None else self._memory.facts
        owners = self._owners
        loader = loaders.facts(self.plan.folder)
        compiler = compiler_watch.facts()
        measured = calibration(self._blocks, slowed=self._slowed)
        sidecar = {
            **measured,
            **throughput(self._described, measured["unprofiled_step_ms"]),
            "peak_memory_bytes": self._peak_memory,
            "warmup": self._warm_up.facts(),
            "workload": {**self.plan.workload, **self._described},
            **collect_environment(),
            **({} if memory is None else {"memory": memory}),
            **({} if owners is None else {"kernel_owners": owners}),
            **({} if loader is None else {"loader": loader}),
            **({} if compiler is None else {"compiler": compiler}),
        }
        with other_profilers.ours():
            self._profiler.export(sidecar)
        if not self._names.wanted:
            other_profilers.release()
        target = Path(self.plan.folder) / sidecar_name(self.rank)
        write_result(target, json.dumps(sidecar, indent=1, sort_keys=True) + "\n")
        self._finished = True
        self._report(NAMING if self._names.wanted else DONE)

    def close(self) -> None:
        """The loop has ended, perhaps before its time: what is complete is kept.

        A program that ends with its profiler running may crash on its way out.
        """
        self._stage = _no_more()
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            return
        if self._waits is not None:
            self._waits.end()
        if self._profiling:
            self._profiling = False
            with other_profilers.ours():
                self._profiler.abandon()
        if not any(block.profiled for block in self._blocks):
            ended_early(self.plan.folder, self._made, self._needed)
            return
        if not self._finished:
            self._finish()
        self._names.close()

    @property
    def _needed(self) -> int:
        """Steps that the timed recording takes with such a warm-up."""
        warmup = max(self._warm_up.steps, self.plan.warmup)
        # Where updates are counted, the first one only shows that there is a loop.
        return int(self._updates_counted) + warmup + self._lengths.steps


def _no_more() -> Stage:
    yield from ()

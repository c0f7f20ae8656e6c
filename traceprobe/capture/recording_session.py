"""The recording of one process: which step does what, and the calibration.

The calibration times the loop as it is without a profiler. It synchronises the device only at its
two ends, so that the host may run ahead as it does in training.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceprobe.capture.hardware import collect_environment
from traceprobe.capture.memory_measurement import MemoryMeasurement
from traceprobe.capture.other_profilers import other_profilers
from traceprobe.capture.owners.kernel_owners import kernel_owners
from traceprobe.capture.profiler_backend import Backend, profiler_backend
from traceprobe.capture.progress import DONE, current_rank, report_state, write_result
from traceprobe.capture.recording_plan import RecordingPlan, sidecar_name

if TYPE_CHECKING:
    import torch


class RecordingSession:
    """Steps through a plan. `before_step` says whether the loop goes on."""

    def __init__(self, plan: RecordingPlan, profiler: Backend | None = None) -> None:
        self.plan = plan
        self._report = partial(report_state, plan.folder)
        self.rank = current_rank()
        self._profiler = profiler or profiler_backend(plan, self.rank)
        other_profilers.watch()
        self._waits: list[int] = []
        self._marks: list[int] = []
        self._calibration: dict[str, Any] = {}
        self._described: dict[str, object] = {}
        self._memory: MemoryMeasurement | None = None
        self.phases: Callable[[str], Any] | None = None
        """Who is told of phases instead of the profiler, while the memory of a step is watched."""

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload, for the sidecar."""
        self._described.update(described)

    def memory(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What the memory of the loop is for."""
        self._memory = MemoryMeasurement(model, optimizer, simulate=self.plan.simulate)

    def after_step(self, number: int, batch: Any) -> Iterator[Any]:
        """Batches of steps that do not count, after step `number` was given `batch`.

        The last warm-up step is the one whose memory is measured; what is simulated follows it.
        """
        if self._memory is None or number != self.plan.warmup - 1:
            return
        self.phases = None
        self._memory.end(batch)
        for fake, phases in self._memory.simulated(batch):
            self.phases = phases
            yield fake
        self.phases = None

    def waited(self, ns: int) -> None:
        """Time spent in the loader's `next` for the step that begins."""
        self._waits.append(ns)

    def before_step(self, number: int) -> bool:
        """Whether step `number` is to be made, after what is due before it is done."""
        plan = self.plan
        calibrated = plan.warmup + plan.calibrate
        if self._memory is not None and number == plan.warmup - 1:
            self._memory.begin()
            self.phases = self._memory.phase
        if number == plan.warmup:
            _synchronize(reset_memory=True)
            self._waits.clear()
            self._report("calibrating")
        if number == calibrated:
            _synchronize()
        if plan.warmup <= number <= calibrated:
            self._marks.append(time.perf_counter_ns())
        if number == calibrated:
            self._calibrate()
            self._report("profiling")
            other_profilers.claim(plan.folder, plan.backend)
            with other_profilers.ours():
                self._profiler.start()
            # A program that ends with its profiler running may crash on its way out.
            atexit.register(self._abandon)
        elif calibrated < number < plan.steps:
            with other_profilers.ours():
                self._profiler.step()
        elif number >= plan.steps:
            _synchronize()
            self._finish()
            return False
        if number == 0:
            self._report("warming up")
        return True

    def _calibrate(self) -> None:
        marks, count = self._marks, self.plan.calibrate
        elapsed, waited = marks[-1] - marks[0], self._waits
        self._calibration = {
            "unprofiled_step_ms": round(elapsed / count / 1e6, 6),
            # None where nobody measures the waiting in the loader.
            "unprofiled_data_wait_ms": round(sum(waited) / count / 1e6, 6) if waited else None,
            "calibration_steps": count,
            # By the host's clock, which runs ahead of the device: only their sum is exact.
            "calibration_step_ms": [round((b - a) / 1e6, 3) for a, b in pairwise(marks)],
            "peak_memory_bytes": _peak_memory(),
        }

    def _throughput(self) -> dict[str, float]:
        """Samples and tokens per second without a profiler, of what the program describes."""
        seconds = self._calibration["unprofiled_step_ms"] / 1e3
        return {
            f"{unit}_per_second": round(count / seconds, 3)
            for unit in ("samples", "tokens")
            if isinstance(count := self._described.get(f"{unit}_per_step"), (int, float))
        }

    def _finish(self) -> None:
        self._report("writing the trace")
        memory = None if self._memory is None else self._memory.facts
        owners = kernel_owners() if self.plan.backend == "torch" else None
        sidecar = {
            **self._calibration,
            **self._throughput(),
            "workload": {**self.plan.workload, **self._described},
            **collect_environment(),
            **({} if memory is None else {"memory": memory}),
            **({} if owners is None else {"kernel_owners": owners}),
        }
        with other_profilers.ours():
            self._profiler.stop(sidecar)
        other_profilers.release()
        atexit.unregister(self._abandon)
        target = Path(self.plan.folder) / sidecar_name(self.rank)
        write_result(target, json.dumps(sidecar, indent=1, sort_keys=True) + "\n")
        self._report(DONE)

    def _abandon(self) -> None:
        with other_profilers.ours():
            self._profiler.abandon()


def _synchronize(*, reset_memory: bool = False) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        if reset_memory:
            torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None

"""The recording of one process: which step does what, and the calibration.

The calibration times the loop as it is without a profiler. It synchronises the device only at its
two ends, so that the host may run ahead as it does in training.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceprobe.capture.blame.recorder import BlameRecorder
from traceprobe.capture.hardware import collect_environment
from traceprobe.capture.loader_watch import loaders
from traceprobe.capture.memory_measurement import MemoryMeasurement
from traceprobe.capture.other_profilers import other_profilers
from traceprobe.capture.owners.kernel_owners import kernel_owners
from traceprobe.capture.profiler_backend import Backend, profiler_backend
from traceprobe.capture.progress import DONE, NAMING, current_rank, report_state, write_result
from traceprobe.capture.recording_plan import RecordingPlan, sidecar_name

if TYPE_CHECKING:
    import torch


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
        self._waits: list[int] = []
        self._marks: list[int] = []
        self._calibration: dict[str, Any] = {}
        self._described: dict[str, object] = {}
        self._memory: MemoryMeasurement | None = None
        self._names: BlameRecorder | None = None
        self._updates_counted = updates_counted
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
        loaders.step()
        if self._memory is not None and number == plan.warmup - 1:
            self._memory.begin()
            self.phases = self._memory.phase
        if number == plan.warmup:
            _synchronize(reset_memory=True)
            self._waits.clear()
            loaders.begin()
            self._report("calibrating")
        if number == calibrated:
            _synchronize()
        if plan.warmup <= number <= calibrated:
            self._marks.append(time.perf_counter_ns())
        if number == calibrated:
            self._calibrate()
            loaders.end(plan.folder, plan.calibrate)
            self._report("profiling")
            other_profilers.claim(plan.folder, plan.backend)
            with other_profilers.ours():
                self._profiler.start()
            # A program that ends with its profiler running may crash on its way out.
            atexit.register(self._abandon)
        elif calibrated < number < plan.steps:
            with other_profilers.ours():
                self._profiler.step()
        elif number == plan.steps:
            _synchronize()
            self._finish()
            return self._begin_names()
        elif number > plan.steps:
            return self._record_names()
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
        loader = loaders.facts(self.plan.folder)
        sidecar = {
            **self._calibration,
            **self._throughput(),
            "workload": {**self.plan.workload, **self._described},
            **collect_environment(),
            **({} if memory is None else {"memory": memory}),
            **({} if owners is None else {"kernel_owners": owners}),
            **({} if loader is None else {"loader": loader}),
        }
        with other_profilers.ours():
            self._profiler.stop(sidecar)
        atexit.unregister(self._abandon)
        if not self._names_wanted:
            other_profilers.release()
        target = Path(self.plan.folder) / sidecar_name(self.rank)
        write_result(target, json.dumps(sidecar, indent=1, sort_keys=True) + "\n")
        self._report(NAMING if self._names_wanted else DONE)

    def _abandon(self) -> None:
        with other_profilers.ours():
            self._profiler.abandon()

    @property
    def _names_wanted(self) -> bool:
        return self.plan.blame and self.plan.backend == "torch"

    def _begin_names(self) -> bool:
        """Whether steps for names follow; nothing of them is there before the timed ones end."""
        if not self._names_wanted:
            return False
        self._names = BlameRecorder(
            self.plan.folder, self.rank, updates_counted=self._updates_counted
        )
        atexit.register(self.close)
        return self._try_names(self._names.start) is not None

    def _record_names(self) -> bool:
        names = self._names
        if names is None:
            return False
        goes_on = self._try_names(names.step)
        if goes_on is False:
            _synchronize()
            self._try_names(names.stop)
            self._end_names()
        return bool(goes_on)

    def _try_names(self, act: Callable[[], bool | None]) -> bool | None:
        """What recording names answers, True for nothing; None, and the end of it, if it fails."""
        try:
            with other_profilers.ours():
                answer = act()
        except Exception as error:  # the timed recording is complete without names
            self._end_names(f"recording them failed ({type(error).__name__}: {error})")
            return None
        return True if answer is None else answer

    def close(self) -> None:
        """The loop has ended: before its steps for names were made, where that still goes on."""
        if self._names is not None:
            steps = self._names.wanting
            self._end_names(
                f"the program has to make {steps} more step{'s' * (steps > 1)} for them"
            )

    def _end_names(self, reason: str | None = None) -> None:
        names, self._names = self._names, None
        if names is None:
            return
        if reason is not None:
            with suppress(Exception), other_profilers.ours():
                names.abandon(reason)
        other_profilers.release()
        atexit.unregister(self.close)
        self._report(DONE)


def _synchronize(*, reset_memory: bool = False) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        if reset_memory:
            torch.cuda.reset_peak_memory_stats()


def _peak_memory() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None

"""The step recorder that a training loop adopts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from traceprobe.capture.loader.batch_feed import feed
from traceprobe.capture.loader.batch_source import BatchSource, NoBatchesError
from traceprobe.capture.loop.loop_updates import StepBatches, updates
from traceprobe.capture.loop.optimizer_hook import adopt_recorder
from traceprobe.capture.memory.memory_prediction_session import (
    MemoryPredictionSession,
    current_memory_prediction,
)
from traceprobe.capture.oracle.ablation_plan import AblationPlan
from traceprobe.capture.oracle.probe_plan import ProbePlan
from traceprobe.capture.oracle.program_ablation import ProgramAblation
from traceprobe.capture.oracle.program_probes import ProgramProbes
from traceprobe.capture.profiler.profiler_ranges import ProfilerRanges
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.recording_session import RecordingSession
from traceprobe.capture.watch.watch_plan import WatchPlan
from traceprobe.model.step_names import step_name

if TYPE_CHECKING:
    import torch

Batch = TypeVar("Batch")


def recorder() -> Recorder:
    """The recorder of this process; it records if `traceprobe profile` started the process."""
    if WatchPlan.current() is None:  # updates count the steps of a watched run in any case
        adopt_recorder()
    ablation, probes = AblationPlan.current(), ProbePlan.current()
    recording = RecordingPlan.current()
    prediction = current_memory_prediction()
    if prediction is not None:
        return Recorder(prediction)
    if ablation is not None:
        return Recorder(ProgramAblation(ablation))
    if probes is not None:
        return Recorder(ProgramProbes(probes))
    return Recorder(None if recording is None else RecordingSession(recording))


class Recorder:
    """Marks steps and phases, and drives a recording or an ablation where there is one."""

    def __init__(
        self,
        driver: RecordingSession | ProgramAblation | ProgramProbes | MemoryPredictionSession | None,
    ) -> None:
        self._driver = driver
        self._ranges = ProfilerRanges()

    @property
    def recording(self) -> bool:
        """Whether traceprobe started this process and decides how many steps it makes."""
        return self._driver is not None

    def phase(self, name: str) -> Any:
        """A context manager around a phase, such as "h2d", "forward", "backward", "optimizer"."""
        phase = None if self._driver is None else self._driver.phases
        return self._ranges(name) if phase is None else phase(name)

    def describe(self, **facts: object) -> None:
        """Add facts about the workload to the recording: batch size, parameters, precision."""
        if self._driver is not None:
            self._driver.describe(facts)

    def memory(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Say, before the loop, what its memory is for.

        A recording then holds how much of a GPU weights, gradients, optimizer state and activations
        take in a step; `traceprobe memory` predicts it.
        """
        if self._driver is not None:
            self._driver.memory(model, optimizer)

    def steps(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of the loader. While it records, those of an update are inside a range `step N`.

        Without a recording this is one pass over the loader. A recording starts the loader anew as
        often as it needs, and ends after its last step. An ablation repeats batches, and throws
        some away.
        """
        if isinstance(self._driver, MemoryPredictionSession):
            return self._driver.steps(loader)
        if isinstance(self._driver, (ProgramAblation, ProgramProbes)):
            return _led(self._driver, BatchSource(loader))
        if self._driver is None:
            return self._one_pass(loader)
        workers = getattr(loader, "num_workers", None)
        if isinstance(workers, int):
            self.describe(loader_workers=workers)
        return self._recorded(self._driver, BatchSource(loader))

    def _one_pass(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        batches = iter(loader)
        for number in itertools.count():
            with self._ranges(step_name(number)):
                try:
                    with self._ranges("data_loading"):
                        batch = next(batches)
                except StopIteration:
                    return
                yield batch

    def _recorded(self, session: RecordingSession, batches: BatchSource[Batch]) -> Iterator[Batch]:
        try:
            yield from self._planned(session, batches)
        finally:
            session.close()

    def _planned(self, session: RecordingSession, batches: BatchSource[Batch]) -> Iterator[Batch]:
        number = 0
        step = StepBatches(updates)
        while session.before_step(number):
            if session.drains:
                batches.drain()
            step.begin()
            waited_ns, over = 0, False
            with self._ranges(step_name(number)):
                while not over:
                    began = time.perf_counter_ns()
                    try:
                        with self._ranges("data_loading"):
                            batch = batches.next()
                    except NoBatchesError:
                        return
                    waited_ns += time.perf_counter_ns() - began
                    yield batch
                    over = step.ended()
                session.waited(waited_ns)
            yield from session.after_step(batch)
            number += 1


def _led(session: ProgramAblation | ProgramProbes, batches: BatchSource[Batch]) -> Iterator[Batch]:
    step = StepBatches(updates)
    try:
        for number in itertools.count():
            if not session.before_step(number):
                return
            step.begin()
            over = False
            while not over:
                try:
                    batch: Batch = feed.next(batches, BatchSource.next)
                except NoBatchesError:
                    return
                yield batch
                over = step.ended()
    finally:
        session.close()

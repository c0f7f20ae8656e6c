"""Inside a program that `traceprobe memory` started: two steps without data, then the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceprobe.capture.loader.batch_source import BatchSource, NoBatchesError
from traceprobe.capture.memory.memory_measurement import describe_optimizer, why_not_simulated
from traceprobe.capture.process.environment import request_folder
from traceprobe.capture.process.progress import report_state, write_result

if TYPE_CHECKING:
    import torch

VARIABLE = "TRACEPROBE_MEMORY_PREDICTION"
"""Environment variable with the folder for the answer."""
ANSWER = "memory.json"
NO_MODEL = (
    "this program does not say what its memory is for, so it cannot be predicted; write "
    "`record.memory(model, optimizer)` before `for batch in record.steps(loader)`, see "
    "docs/memory.md"
)


class MemoryPredictionSession:
    """Gives a loop batches without data; `steps` ends after the simulated ones."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._holders: tuple[torch.nn.Module, torch.optim.Optimizer] | None = None
        self.phases: Callable[[str], Any] | None = None

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload are not needed."""

    def memory(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What the memory of the loop is for."""
        self._holders = model, optimizer

    def steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The simulated steps; afterwards the answer is in the folder."""
        from traceprobe.capture.memory.step_simulation import StepSimulation

        if self._holders is None:
            raise SystemExit(NO_MODEL)
        model, optimizer = self._holders
        reason = why_not_simulated(model)
        if reason is not None:
            raise SystemExit(f"its memory cannot be predicted: {reason}")
        try:
            batch = BatchSource(loader).next()
        except NoBatchesError:
            return
        report_state(self._folder, "simulating")
        simulation = StepSimulation(model, optimizer)
        self.phases = simulation.phase
        yield from simulation.steps(batch)
        self.phases = None
        answer = {**describe_optimizer(optimizer), "predicted": simulation.result}
        write_result(Path(self._folder) / ANSWER, json.dumps(answer, sort_keys=True) + "\n")


def current_memory_prediction() -> MemoryPredictionSession | None:
    """The prediction that this process was started for, or None."""
    name = os.environ.get(VARIABLE)
    found = request_folder(VARIABLE, name) if name else None
    return MemoryPredictionSession(found) if found else None

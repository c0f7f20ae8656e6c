"""Steps a program under TraceML: `traceml run run_under_traceml.py --args FILE OPTIONS SECONDS`.

The step is wrapped as TraceML's documentation shows: `trace_step(model)` around what follows the
batch. The programs are generators that yield after each step, so it is opened where a loader of the
program hands a batch over. TraceML diagnoses nothing where none does: before the steps of a program
whose data lie ready, a loader here hands over numbers. Nothing of this project is imported.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import traceml_ai as traceml
from torch.utils.data import DataLoader

WARM, LEAST = 8, 30
"""Steps that are not traced, and that are at least: TraceML calls nothing critical below 20."""


class Tracer:
    """Opens a traced step once a batch is there, and closes it where the program yields."""

    def __init__(self) -> None:
        self.fetched = 0
        self.model: torch.nn.Module | None = None
        self.open_step: AbstractContextManager[None] | None = None

    def watch(self) -> None:
        """Hear of batches, after TraceML has timed them, and of the largest module called."""
        theirs = DataLoader.__iter__

        def batches(loader: Any) -> Iterator[Any]:
            for batch in theirs(loader):
                self.fetched += 1
                self.begin()
                yield batch

        DataLoader.__iter__ = batches  # type: ignore[method-assign, assignment]
        seen = torch.nn.modules.module.register_module_forward_pre_hook(self._called)
        self.stop_looking = seen.remove

    def _called(self, module: torch.nn.Module, _inputs: Any) -> None:
        if self.model is None or _size(module) > _size(self.model):
            self.model = module

    def begin(self) -> None:
        """Open a step, where none is open and the model is known for good."""
        if self.armed and self.open_step is None and self.model is not None:
            self.open_step = traceml.trace_step(self.model)
            self.open_step.__enter__()

    def end(self) -> None:
        """Close it."""
        if self.open_step is not None:
            self.open_step.__exit__(None, None, None)
            self.open_step = None

    armed = False


def _size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def main(file: str, options: str, seconds: float) -> None:
    """Make steps for some seconds, and at least a few."""
    traceml.init()
    tracer = Tracer()
    tracer.watch()
    module = _loaded(Path(file))
    chosen = module.Options(**json.loads(options))
    if hasattr(module, "settings"):
        module.settings(chosen)
    steps = module.train(chosen)
    for _ in range(WARM):
        next(steps)
    tracer.stop_looking()
    tracer.armed = True
    nothing = iter(DataLoader(range(10**9), batch_size=None))  # type: ignore[arg-type]
    resident = not tracer.fetched
    began, made = time.monotonic(), 0
    while made < LEAST or time.monotonic() - began < seconds:
        if resident:
            next(nothing)
        next(steps)
        tracer.end()
        made += 1


def _loaded(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))

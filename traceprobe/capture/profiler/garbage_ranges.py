"""Ranges around Python's collections of garbage in what is recorded."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from typing import Any

from traceprobe.capture.profiler.profiler_ranges import ProfilerRange, ProfilerRanges
from traceprobe.model.garbage import collection_name

_LEAST = 1
"""The youngest objects, generation 0, are looked at all the time, in some microseconds."""


class GarbageRanges:
    """A range around each collection while a profiler runs, on the thread that it stops.

    Whatever fails here is no matter of the program's.
    """

    def __init__(self) -> None:
        self._open: ProfilerRange | None = None
        self._process = 0

    def begin(self) -> None:
        """Have ranges from now on."""
        self._ranges, self._process = ProfilerRanges(), os.getpid()
        if self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)

    def end(self) -> None:
        """No ranges from now on."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, told: dict[str, int]) -> None:
        with suppress(Exception):
            if phase == "start":
                self._begin_range(told.get("generation", 0))
            elif self._open is not None:
                closing, self._open = self._open, None
                with _unseen():
                    closing.__exit__()

    def _begin_range(self, generation: int) -> None:
        import torch

        # An operator of PyTorch begins a range. A mode that looks at operators, as those of
        # compilers do, or a tracer would see one that is none of the program's.
        watched = torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state()
        # Workers of a loader that were forked meanwhile have the callback, but no profiler.
        if generation < _LEAST or watched or self._process != os.getpid():
            return
        found = self._ranges(collection_name(generation))
        with _unseen():
            found.__enter__()
        self._open = found


def _unseen() -> Any:
    """No mode of the program that looks at functions of PyTorch sees one inside."""
    import torch

    return torch._C.DisableTorchFunction()


garbage_ranges = GarbageRanges()
"""Those of this process."""

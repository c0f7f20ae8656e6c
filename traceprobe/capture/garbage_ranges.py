"""Ranges around Python's collections of garbage in what is recorded."""

from __future__ import annotations

import gc
from contextlib import suppress

from traceprobe.capture.profiler_ranges import ProfilerRange, ProfilerRanges
from traceprobe.model.garbage import collection_name

_LEAST = 1
"""The youngest objects, generation 0, are looked at all the time, in some microseconds."""


class GarbageRanges:
    """A range around each collection while a profiler runs, on the thread that it stops.

    Whatever fails here is no matter of the program's.
    """

    def __init__(self) -> None:
        self._open: ProfilerRange | None = None

    def begin(self) -> None:
        """Have ranges from now on."""
        self._ranges = ProfilerRanges()
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
                closing.__exit__()

    def _begin_range(self, generation: int) -> None:
        import torch

        # An operator of PyTorch begins a range, and a mode that looks at operators, as those of
        # compilers do, would see one that is none of the program's.
        if generation < _LEAST or torch._C._len_torch_dispatch_stack():
            return
        found = self._ranges(collection_name(generation))
        found.__enter__()
        self._open = found


garbage_ranges = GarbageRanges()
"""Those of this process."""

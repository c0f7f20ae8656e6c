"""How long a loop that does not use the recorder waits for batches in its steps."""

from __future__ import annotations

import os
from typing import Any

from traceprobe.capture.loader.batch_feed import Give, feed
from traceprobe.capture.profiler.profiler_ranges import ProfilerRanges
from traceprobe.capture.watch.loader_waits import LoaderWaits


class StepWaits:
    """Stands in for the loaders' `__next__`, which it calls, from `begin` to `end`.

    Args:
        marked: whether waiting is inside a range, as torch.profiler has one without being asked.
    """

    def __init__(self, *, marked: bool) -> None:
        self._waits = LoaderWaits(lambda *_: None)
        self._ranges = ProfilerRanges() if marked else None
        self._process = os.getpid()

    def begin(self) -> None:
        """Measure from now on, where nothing else stands there."""
        if feed.source is None:
            feed.source = self._next

    def end(self) -> None:
        """Measure no more."""
        if feed.source == self._next:
            feed.source = None

    def step(self) -> tuple[int, int] | None:
        """How long the step that ended on this thread waited for its loader, and for others, ns.

        None where this thread is given no batches: what feeds it is no DataLoader, or another
        thread asks for batches ahead of it.
        """
        waited = self._waits.step()
        return (waited, self._waits.others) if self._waits.here else None

    def _next(self, iterator: Any, give: Give) -> Any:
        if os.getpid() != self._process:  # a loader inside of a worker
            return give(iterator)
        if self._ranges is None:
            return self._waits.next(iterator, give)
        # By the name that torch.profiler gives it.
        with self._ranges(f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"):
            return self._waits.next(iterator, give)

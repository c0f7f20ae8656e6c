"""How long the loop waits for batches, and which of its loaders feeds the steps.

The loader that gave the last batch before an update feeds it. Batches that another one gives are
evaluated: that begins when the first of them is asked for, and ends when the loop asks the feeding
loader again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from traceprobe.capture.loader.batch_feed import Give
from traceprobe.capture.watch.rows import Kind

Note = Callable[[Kind, int, int, int], None]
"""Takes kind, count, end and duration of what has ended."""


class LoaderWaits:
    """Takes the place of the loaders' `__next__`, and calls it.

    Args:
        note: told of evaluations, and of passes over the feeding loader that begin.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._feeding: int | None = None
        self._last: int | None = None
        self._waits: dict[int, int] = {}
        self._evaluated: tuple[int, int] | None = None
        """When the first batch of an evaluation was asked for, and of which loader."""
        self._batches = 0
        self._threads: set[int] = set()
        """That were given batches since the last step."""
        self.here = False
        """Whether the thread that makes the steps is given the batches, and so waits for them."""
        self.others = 0
        """How long the step that ended last waited for loaders that do not feed it, ns."""
        self.workers: int | None = None
        """Of the loader that gave the last batch."""

    def next(self, iterator: Any, give: Give) -> Any:
        """The next batch of an iterator."""
        began = time.perf_counter_ns()
        # Those of an epoch after the other are one loader: they have one data set.
        loader = id(getattr(iterator, "_dataset", iterator))
        if self._feeding is not None:
            self._asked(loader, began)
        first = getattr(iterator, "_num_yielded", 1) == 0
        batch = give(iterator)
        ended = time.perf_counter_ns()
        self._waits[loader] = self._waits.get(loader, 0) + ended - began
        self._last = loader
        self._threads.add(threading.get_ident())
        self.workers = getattr(iterator, "_num_workers", None)
        if first and loader == self._feeding:
            self._note(Kind.PASS, 1, ended, ended - began)
        return batch

    def _asked(self, loader: int, now: int) -> None:
        if loader != self._feeding:
            if self._evaluated is None:
                self._evaluated, self._batches = (now, loader), 0
            self._batches += 1
        elif self._evaluated is not None:
            began, self._evaluated = self._evaluated[0], None
            self._note(Kind.EVALUATION, self._batches, now, now - began)

    def step(self) -> int:
        """How long the step that has ended waited for its loader, ns."""
        if self._threads:
            self.here = threading.get_ident() in self._threads
            self._threads.clear()
        feeding, self.others = self._last, 0
        if feeding is None:
            return 0
        if self._evaluated is not None and self._evaluated[1] == feeding:
            self._evaluated = None  # it is fed by another loader from now on
        self._feeding = feeding
        waited = self._waits.pop(feeding, 0)
        self.others = sum(self._waits.values())
        self._waits.clear()
        return waited

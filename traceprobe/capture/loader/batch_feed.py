"""What a DataLoader of the program gives: its own batches, or others in their place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

Give = Callable[[Any], Any]
"""A DataLoader's own `__next__`, of one of its iterators."""
_LOADER = "_traceprobe_of"


class BatchFeed:
    """Stands between the DataLoaders of a process and its loop.

    `source` takes the place of a loader's `__next__` while it is set: it is called with the
    iterator and with that method, and may call it.
    """

    def __init__(self) -> None:
        self.source: Callable[[Any, Give], Any] | None = None

    def opened(self, iterator: Any, loader: Any) -> None:
        """A pass over a loader begins."""
        with suppress(Exception):  # an iterator of any make, whose program must not fail for it
            # On the iterator itself: the two may hold each other, and then are freed together.
            setattr(iterator, _LOADER, loader)

    def loader(self, iterator: Any) -> Any:
        """The loader that a pass is over; None where that is not known."""
        return getattr(iterator, _LOADER, None)

    def next(self, iterator: Any, give: Give) -> Any:
        """The next batch of an iterator."""
        source = self.source
        return give(iterator) if source is None else source(iterator, give)


feed = BatchFeed()
"""Of this process."""

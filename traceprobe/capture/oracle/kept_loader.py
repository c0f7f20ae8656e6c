"""A DataLoader of the program whose batches are kept, and given again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from traceprobe.capture.loader.batch_feed import Give
from traceprobe.capture.loader.batch_source import READY_S
from traceprobe.capture.oracle.nested import rebuilt, tensors, version_of

_LATE = 2.0
"""Times that the quickest batch took, above which one was not ready."""
_STRETCHED = "_traceprobe_stretched"
"""Set on iterators."""


@dataclass
class KeptLoader:
    """A loader, the batches that are kept of it, and how far the program is with it.

    Args:
        owners: what its key is made of, kept alive. batches: as they were given first.
        versions: of their tensors at that time. asked: batches that the program asked for.
        fed: steps that it asked in. last_step: the last of them.
        iterator, give: of the last of them. given: how many were given again.
        second: a pass over it that the program knows nothing of. due: batches to be taken from it.
        quickest_s: least time that the program had to wait for a batch.
    """

    owners: tuple[Any, ...]
    batches: list[Any] = field(default_factory=list)
    versions: list[tuple[Any, int]] = field(default_factory=list)
    asked: int = 0
    fed: int = 0
    last_step: int = -1
    iterator: Any = None
    give: Give | None = None
    given: int = 0
    second: Any = None
    due: float = 0.0
    quickest_s: float = math.inf

    @property
    def workers(self) -> int:
        """Processes that load."""
        of_iterator = getattr(self.iterator, "_num_workers", None)
        return int(of_iterator or getattr(self.iterator, "workers", 0) or 0)

    @property
    def ahead(self) -> int:
        """Batches that they may hold ready."""
        of_source = getattr(self.iterator, "ahead", None)
        prefetched = int(getattr(self.iterator, "_prefetch_factor", 0) or 2)
        return self.workers * prefetched if of_source is None else int(of_source)

    @property
    def changed(self) -> bool:
        """Whether a tensor is no longer what it was."""
        return any(version_of(tensor) != version for tensor, version in self.versions)

    @property
    def ended(self) -> bool:
        """Whether the pass has given all its batches; False where nobody knows how many it has."""
        try:
            return bool(getattr(self.iterator, "_num_yielded", 0) >= len(self.iterator))
        except (TypeError, NotImplementedError):
            return False

    @property
    def stretched(self) -> bool:
        """Whether the pass has given batches again: its own end is not that of the epoch."""
        return bool(getattr(self.iterator, _STRETCHED, False))

    def waited(self, seconds: float) -> bool:
        """Whether a batch that took so long was not ready; a large one is handed over slowly."""
        self.quickest_s = min(self.quickest_s, seconds)
        return seconds > max(READY_S, _LATE * self.quickest_s)

    def keep(self, batch: Any) -> None:
        """Keep a batch as it is now."""
        self.batches.append(rebuilt(batch))
        self.versions += [(tensor, version_of(tensor)) for tensor in tensors(batch)]

    def again(self) -> Any:
        """A batch that was kept, the next in turn.

        Raises:
            StopIteration: the epoch has had all its batches.
        """
        if self.ended:
            raise StopIteration
        self.given += 1
        if hasattr(self.iterator, "_num_yielded"):
            self.iterator._num_yielded += 1
            setattr(self.iterator, _STRETCHED, True)
        return rebuilt(self.batches[self.given % len(self.batches)])

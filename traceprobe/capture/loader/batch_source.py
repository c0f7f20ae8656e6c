"""Batches without end, and control over what a loader has ready.

Worker processes load ahead until their queues are full. A measurement that begins with full queues
sees a faster loader than the run has; one that begins while they fill shares the CPU with them.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from traceprobe.capture.loader.batch_feed import feed
from traceprobe.system.process_tree import ran_ticks, stat_fields

Batch = TypeVar("Batch")

READY_S = 0.005
"""A batch that takes longer than this was not ready."""
REST_S = 0.15
"""Processes that need no CPU for so long are at rest."""
PATIENCE_S = 20.0


class NoBatchesError(Exception):
    """A loader that gives nothing, or nothing more."""


class BatchSource(Generic[Batch]):
    """An endless iterator over a loader, which starts anew where it ends."""

    def __init__(self, loader: Iterable[Batch]) -> None:
        self._loader = loader
        self._batches: Iterator[Batch] = iter(loader)
        feed.opened(self, loader)

    @property
    def workers(self) -> int:
        """Worker processes of a DataLoader; 0 for anything else."""
        return int(getattr(self._loader, "num_workers", 0) or 0)

    @property
    def ahead(self) -> int:
        """Batches that they may hold ready."""
        return self.workers * int(getattr(self._loader, "prefetch_factor", None) or 2)

    def next(self) -> Batch:
        """The next batch.

        Raises:
            NoBatchesError: the loader has none, or cannot start anew (a generator).
        """
        for batch in self._batches:
            return batch
        self._batches = iter(self._loader)
        for batch in self._batches:
            return batch
        raise NoBatchesError

    def drain(self) -> None:
        """Throw away what is ready, until a batch has to be waited for."""
        for _ in range(self.ahead):
            began = time.perf_counter()
            self.next()
            if time.perf_counter() - began > READY_S:
                return


def wait_for_workers() -> None:
    """Wait until the child processes have filled their queues and need the CPU no more."""
    deadline = time.monotonic() + PATIENCE_S
    before = _cpu_ticks()
    while before is not None and time.monotonic() < deadline:
        time.sleep(REST_S)
        now = _cpu_ticks()
        if now is None or now - before <= 1:
            return
        before = now


def _cpu_ticks() -> int | None:
    """CPU time that the child processes have used so far; None where there are none."""
    if not multiprocessing.active_children():
        return None
    total = 0
    for child in multiprocessing.active_children():
        try:
            total += ran_ticks(stat_fields(child.pid or 0))
        except OSError:
            continue
    return total

"""Record of the loader that feeds the steps of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.records.cleaning import Clean
from traceprobe.records.texts import Name

MOST_LINES, MOST_TEXT, MOST = 200, 256, 1e15
"""What a recording may hold; one with more was not written by traceprobe."""


class LoaderLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program, or of a library that the loader calls, that takes time of a batch."""

    part: Literal["item", "collate"]
    name: Name | None
    """As `data.py(57): decode`; None where it may not be told."""
    ms: float
    """Of one worker, per batch."""


class Loader(Clean, frozen=True, kw_only=True):
    """A DataLoader; its times are means over batches after the first of each worker.

    They are those of one worker, or of the step thread without workers.
    """

    workers: int
    batch_size: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    dataset: Name | None = None
    """Its class."""
    iterable: bool = False
    """Whether it is one that is gone through, so that each worker goes through all of it."""
    batches_per_step: float = 0.0
    """Without a profiler."""
    batches: int = 0
    """That were timed."""
    items_per_batch: float = 0.0
    item_ms: float = 0.0
    """For one item: `__getitem__`, or the next one of an iterable dataset."""
    collate_ms: float = 0.0
    """For one batch."""
    samples: int = 0
    """Of workers that were at work."""
    lines: list[LoaderLine] = msgspec.field(default_factory=list)

    @property
    def batch_ms(self) -> float:
        """Time of one worker for a batch; 0 where none was timed."""
        return self.item_ms * self.items_per_batch + self.collate_ms

    @property
    def worker_ms(self) -> float:
        """Time that each worker, or the step thread, needs for the batches of an iteration."""
        return self.batch_ms * self.batches_per_step / max(self.workers, 1)

    @property
    def load_ms(self) -> float | None:
        """Time in which all workers together make the batches of an iteration; None without any."""
        return self.worker_ms if self.workers else None

    def problems(self) -> Iterator[str]:
        """What no recording holds."""
        amounts = (
            *(self.workers, self.batch_size or 0, self.prefetch_factor or 0, self.samples),
            *(self.batches, self.batches_per_step, self.items_per_batch),
            *(self.item_ms, self.collate_ms, *(line.ms for line in self.lines)),
        )
        if not all(0 <= amount <= MOST for amount in amounts):
            yield "loader: a number of it is none that a loader has"
        names = (self.dataset, *(line.name for line in self.lines))
        if len(self.lines) > MOST_LINES or any(len(name or "") > MOST_TEXT for name in names):
            yield "loader: it has more lines or longer names than a recording"


def read(recorded: object) -> Loader | None:
    """What a recording says of its loader; None where it says nothing that makes sense."""
    try:
        found = msgspec.convert(recorded, Loader)
    except msgspec.ValidationError:
        return None
    return None if any(found.problems()) else found

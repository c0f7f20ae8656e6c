"""Where the critical path runs in a recorded iteration, for a picture to show.

The path is one of played times; its work has recorded ones. What it waits for between two pieces of
work, and at the ends of the window, fills the recorded time between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.critical_path import Stretch
from traceprobe.records.picture import Picture, Window
from traceprobe.records.rank import Rank
from traceprobe.records.replay import Replay

if TYPE_CHECKING:
    import polars as pl

MAX_STRETCHES = 2_000


def path_stretches(table: pl.DataFrame, ranks: Sequence[Rank]) -> list[Stretch]:
    """Where a path runs in an iteration that is played and drawn, else in the last that is played.

    Args:
        table: rows of the path in the order of time: `rank` (index in `ranks`), `task`, `part`,
            `last` (whether of the task's last operation only) and `ms`.
    """
    replays = [rank.replay for rank in ranks if isinstance(rank.replay, Replay)]
    if len(replays) < len(ranks) or not all(r.start_ns and r.end_ns for r in replays):
        return []
    iteration = next(_drawn(ranks), replays[0].iterations - 1)
    line = _Line(ranks, [_window(rank, iteration) for rank in ranks])
    rows = table.select("rank", "task", "part", "last", "ms").iter_rows()
    for rank, task, part, last, ms in rows:
        replay = replays[rank]
        if replay.iteration[task] != iteration:
            continue
        if part not in BUSY_LABELS:
            line.wait(rank, part, ms)
            continue
        start, end = replay.start_ns[task], replay.end_ns[task]
        line.work(rank, part, max(start, end - replay.tail_ns[task]) if last else start, end)
    line.close()
    return _fewer(line.found)


def _fewer(found: list[Stretch]) -> list[Stretch]:
    """At most `MAX_STRETCHES` that are as long together: the shortest are of the one before."""
    if len(found) <= MAX_STRETCHES:
        return found
    lengths = np.sort([each.end_ns - each.start_ns for each in found])
    short = int(lengths[len(found) - MAX_STRETCHES])
    kept = found[:1]
    for each in found[1:]:
        before = kept[-1]
        same = each.part == before.part or each.end_ns - each.start_ns <= short
        if same and (each.rank, each.start_ns) == (before.rank, before.end_ns):
            kept[-1] = replace(before, end_ns=each.end_ns)
        else:
            kept.append(each)
    return kept[-MAX_STRETCHES:]


def _drawn(ranks: Sequence[Rank]) -> Iterator[int]:
    """Played iterations that pictures show, the first windows first."""
    for rank in ranks:
        for window in rank.picture.windows if isinstance(rank.picture, Picture) else ():
            yield from _shown(rank, window)


def _shown(rank: Rank, window: Window) -> list[int]:
    """The played iteration that is mostly in a window, if there is one."""
    assert isinstance(rank.replay, Replay)
    iteration, start = np.array(rank.replay.iteration), np.array(rank.replay.start_ns)
    end = window.start_ns + window.duration_ns
    count = np.bincount(iteration[(window.start_ns <= start) & (start < end)], minlength=1)
    most = int(count.argmax())
    return [most] if 2 * count[most] > np.count_nonzero(iteration == most) else []


def _window(rank: Rank, iteration: int) -> Window | None:
    windows = rank.picture.windows if isinstance(rank.picture, Picture) else ()
    return next((window for window in windows if iteration in _shown(rank, window)), None)


class _Line:
    """Stretches, one after the other: on one clock where the pictures of all ranks have one."""

    def __init__(self, ranks: Sequence[Rank], windows: Sequence[Window | None]) -> None:
        self.ranks, self.windows = ranks, windows
        self.found: list[Stretch] = []
        clocks = [r.picture.clock_ns if isinstance(r.picture, Picture) else None for r in ranks]
        known = [clock for clock in clocks if clock is not None]
        self._one = len(known) == len(clocks) or len(clocks) == 1
        self._clocks = known if len(known) == len(clocks) else [0] * len(clocks)
        starts = [
            w.start_ns + clock
            for w, clock in zip(windows, self._clocks, strict=True)
            if w is not None
        ]
        self._until = {0: min(starts)} if self._one and starts else {}
        self._waits: dict[tuple[int, str], float] = {}

    def wait(self, rank: int, part: str, ms: float) -> None:
        """Something is waited for."""
        self._waits[rank, part] = self._waits.get((rank, part), 0.0) + ms

    def work(self, rank: int, part: str, start: int, end: int) -> None:
        """An operation runs, recorded on its rank's clock; what was waited for comes before it."""
        clock = self._clocks[rank]
        key = 0 if self._one else rank
        until = self._until.get(key, start + clock)
        self._fill(until, start + clock)
        self._add(rank, part, max(start + clock, until), end + clock)
        self._until[key] = max(until, end + clock)
        self._waits.clear()

    def close(self) -> None:
        """What is still waited for lasts until the window of its rank ends."""
        if self._waits and self._one and 0 in self._until:
            rank, _ = max(self._waits, key=lambda each: self._waits[each])
            window = self.windows[rank]
            if window is not None:
                end = window.start_ns + window.duration_ns
                self._fill(self._until[0], end + self._clocks[rank])

    def _fill(self, start: int, end: int) -> None:
        if self._waits:
            rank, part = max(self._waits, key=lambda each: self._waits[each])
            self._add(rank, part, start, end)

    def _add(self, rank: int, part: str, start: int, end: int) -> None:
        if end <= start:
            return
        number, clock = self.ranks[rank].rank, self._clocks[rank]
        before = self.found[-1] if self.found else None
        if before and (before.rank, before.part, before.end_ns) == (number, part, start - clock):
            start = self.found.pop().start_ns + clock
        self.found.append(
            Stretch(rank=number, part=part, start_ns=start - clock, end_ns=end - clock)
        )

"""Pictures of several ranks beside each other: one clock, the same iterations, who shares what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.model.codes import Int64s
from traceprobe.model.taxonomy import WindowKind
from traceprobe.records.packed import Table
from traceprobe.records.picture import Picture, Window
from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.common_clock import clock_offsets
from traceprobe.timeline.rank_collectives import RankCollectives

MOST_OPS = 400_000
"""Operations of the pictures of all ranks together."""
MOST_HOST_ROWS = 240_000
"""The same of rows of the host."""


class WindowRows(msgspec.Struct, frozen=True):
    """A window of a picture, and how much there is in it: operations, and rows of the host."""

    why: WindowKind
    iteration: int | None
    ops: int
    host: int


def window_rows(picture: Picture) -> list[WindowRows]:
    """How much there is in each window of a picture."""
    return [WindowRows(w.why, w.iteration, w.ops.rows, w.host.rows) for w in picture.windows]


class RankPicture(msgspec.Struct, frozen=True):
    """What places the picture of one rank, as its trace alone gives it, among the others.

    Args:
        windows: of the picture.
        source: index of the input. zero: time zero of its times on the trace's clock, ns.
        labels: of the iterations.
        collectives: of the rank. matched: those that other ranks have too.
    """

    windows: Sequence[WindowRows]
    source: int
    zero: int
    labels: Sequence[str]
    collectives: RankCollectives
    matched: MatchedCollectives | None


class PlannedPicture(msgspec.Struct, frozen=True):
    """What the picture of a rank shows beside those of the others.

    Args:
        windows: their numbers, in order. share: part of the rows of the host that fit.
        clock_ns: as in the picture.
    """

    rank: RankPicture
    windows: Sequence[int]
    share: float
    clock_ns: int | None

    def drawn(self, picture: Picture) -> Picture:
        """That of the picture of the rank's trace."""
        windows = [picture.windows[number] for number in self.windows]
        return replace(
            picture,
            windows=[_with_shared(picture, _thinned(w, self.share), self.rank) for w in windows],
            clock_ns=self.clock_ns,
        )


def planned(ranks: Sequence[RankPicture]) -> list[PlannedPicture | None]:
    """What each picture shows: one usual iteration, the same one where they can be, on one clock.

    Of a run with more operations than `MOST_OPS` first the windows that are not usual are left out,
    then the last ranks.
    """
    offsets = clock_offsets(
        [rank.collectives for rank in ranks],
        [rank.matched for rank in ranks],
        [rank.source for rank in ranks],
    )
    usual = _usual_label(ranks)
    left = MOST_OPS
    kept: list[list[int]] = []
    for rank in ranks:
        number = _usual(rank, usual)
        left -= rank.windows[number].ops if number is not None else 0
        kept.append([number] if number is not None and (left >= 0 or not any(kept)) else [])
    for rank, numbers in zip(ranks, kept, strict=True):
        for number, window in enumerate(rank.windows if numbers else ()):
            if window.why != "typical" and number != numbers[0] and window.ops <= left:
                numbers.append(number)
                left -= window.ops
    rows = sum(r.windows[n].host for r, numbers in zip(ranks, kept, strict=True) for n in numbers)
    share = min(MOST_HOST_ROWS / max(rows, 1), 1.0)
    return [
        PlannedPicture(
            rank, numbers, share, None if ahead is None else rank.zero - ahead - ranks[0].zero
        )
        if numbers
        else None
        for rank, numbers, ahead in zip(ranks, kept, offsets, strict=True)
    ]


def _candidates(rank: RankPicture) -> list[int]:
    """The usual windows of a rank, the most usual first; its first one where none is."""
    windows = rank.windows
    return [n for n, w in enumerate(windows) if w.why == "typical"] or [0][: len(windows)]


def _label(rank: RankPicture, number: int) -> str | None:
    iteration = rank.windows[number].iteration
    return None if iteration is None else rank.labels[iteration]


def _usual_label(ranks: Sequence[RankPicture]) -> str | None:
    """The iteration that is most usual on all ranks."""
    places = [[_label(rank, number) for number in _candidates(rank)] for rank in ranks]
    labels = dict.fromkeys(label for found in places for label in found)

    def distance(label: str | None) -> int:
        return sum(p.index(label) if label in p else 2 * len(p) for p in places)

    return min(labels, key=distance, default=None)


def _usual(rank: RankPicture, label: str | None) -> int | None:
    numbers = _candidates(rank)
    first = numbers[0] if numbers else None
    return next((n for n in numbers if _label(rank, n) == label), first)


def _thinned(window: Window, share: float) -> Window:
    """The window with a part of the rows of its host, the longest ones."""
    count = int(window.host.rows * share)
    if count >= window.host.rows:
        return window
    columns = window.host.columns()
    starts = columns["start"].cumsum()
    longest = np.sort(np.argsort(-columns["duration"], kind="stable")[:count])
    host = {name: values[longest] for name, values in columns.items()}
    host["start"] = np.diff(starts[longest], prepend=0)
    left_out = window.left_out + window.host.rows - count
    return replace(window, host=Table.of(host), left_out=left_out)


def _with_shared(picture: Picture, window: Window, rank: RankPicture) -> Window:
    """The window with the numbers of the collectives that other ranks have too."""
    if rank.matched is None or not len(rank.matched.row):
        return window
    columns = window.ops.columns()
    ends = columns["start"].cumsum() + columns["duration"] + window.start_ns + rank.zero
    is_collective = columns["class"] == picture.classes.index("communication")
    rows = np.flatnonzero(is_collective)
    columns["shared"][rows] = _numbers(rank.collectives, rank.matched, ends[rows])
    return replace(window, ops=Table.of(columns))


def _numbers(rank: RankCollectives, matched: MatchedCollectives, ends: Int64s) -> Int64s:
    """1 + number of the collective that ends at each instant; 0 for none that is shared."""
    known = rank.collectives["t1"].to_numpy()[matched.row]
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, ends, sorter=order), len(known) - 1)
    hit = known[order[at]] == ends
    return np.where(hit, matched.number[order[at]] + 1, 0)

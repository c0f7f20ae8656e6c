"""Pictures of several ranks beside each other: one clock, the same iterations, who shares what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.model.codes import Int64s
from traceprobe.records.packed import Table
from traceprobe.records.picture import Picture, Window
from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.common_clock import clock_offsets
from traceprobe.timeline.rank_collectives import RankCollectives

MOST_OPS = 400_000
"""Operations of the pictures of all ranks together."""
MOST_HOST_ROWS = 240_000
"""The same of rows of the host."""


class RankPicture(msgspec.Struct, frozen=True):
    """The picture of one rank as its trace alone gives it, and what places it among the others.

    Args:
        source: index of the input. zero: time zero of its times on the trace's clock, ns.
        labels: of the iterations.
        collectives: of the rank. matched: those that other ranks have too.
    """

    picture: Picture
    source: int
    zero: int
    labels: Sequence[str]
    collectives: RankCollectives
    matched: MatchedCollectives | None


def joined(ranks: Sequence[RankPicture]) -> list[Picture | UnsetType]:
    """The pictures with one usual iteration each, the same one where they can be, on one clock.

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
    kept: list[list[Window]] = []
    for rank in ranks:
        window = _usual(rank, usual)
        left -= window.ops.rows if window is not None else 0
        kept.append([window] if window is not None and (left >= 0 or not any(kept)) else [])
    for rank, windows in zip(ranks, kept, strict=True):
        for window in rank.picture.windows if windows else ():
            if window.why != "typical" and window is not windows[0] and window.ops.rows <= left:
                windows.append(window)
                left -= window.ops.rows
    rows = sum(window.host.rows for windows in kept for window in windows)
    share = min(MOST_HOST_ROWS / max(rows, 1), 1.0)
    return [
        replace(
            rank.picture,
            windows=[_with_shared(_thinned(window, share), rank) for window in windows],
            clock_ns=None if ahead is None else rank.zero - ahead - ranks[0].zero,
        )
        if windows
        else UNSET
        for rank, windows, ahead in zip(ranks, kept, offsets, strict=True)
    ]


def _candidates(rank: RankPicture) -> list[Window]:
    """The usual windows of a rank, the most usual first; its first one where none is."""
    windows = rank.picture.windows
    return [w for w in windows if w.why == "typical"] or windows[:1]


def _label(rank: RankPicture, window: Window) -> str | None:
    return None if window.iteration is None else rank.labels[window.iteration]


def _usual_label(ranks: Sequence[RankPicture]) -> str | None:
    """The iteration that is most usual on all ranks."""
    places = [[_label(rank, window) for window in _candidates(rank)] for rank in ranks]
    labels = dict.fromkeys(label for found in places for label in found)

    def distance(label: str | None) -> int:
        return sum(p.index(label) if label in p else 2 * len(p) for p in places)

    return min(labels, key=distance, default=None)


def _usual(rank: RankPicture, label: str | None) -> Window | None:
    windows = _candidates(rank)
    first = windows[0] if windows else None
    return next((w for w in windows if _label(rank, w) == label), first)


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


def _with_shared(window: Window, rank: RankPicture) -> Window:
    """The window with the numbers of the collectives that other ranks have too."""
    if rank.matched is None or not len(rank.matched.row):
        return window
    columns = window.ops.columns()
    ends = columns["start"].cumsum() + columns["duration"] + window.start_ns + rank.zero
    is_collective = columns["class"] == rank.picture.classes.index("communication")
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

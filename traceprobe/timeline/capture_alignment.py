"""Captures without steps that do not begin and end with the same collective.

Profilers start and stop on each rank at an instant of its own, so one rank may have recorded some
collectives more than another. With step markers the odd steps are left out. Without, the sequences
are shifted against each other until the collectives end together: the same one ends at once on all
ranks, so the differences of the ends are those of the clocks, and constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.accounting import ENDS_TOGETHER, FEWEST_ALIGNED
from traceprobe.model.codes import Int64s
from traceprobe.timeline.collective_matching import sequences
from traceprobe.timeline.rank_collectives import WHOLE, RankCollectives

_MOST_SHIFTS = 2_000
"""Shifts that are tried: captures of a rank rarely differ by more, and each takes time."""


def aligned(ranks: Sequence[RankCollectives]) -> list[RankCollectives]:
    """The ranks with those collectives that all ranks of their sequence recorded.

    Captures with step markers, and such with equal numbers, stay as they are. So does a sequence
    for which no shift lets the collectives end together.
    """
    tables = [rank.collectives for rank in ranks]
    if len(tables) < 2 or any((t["step"] != WHOLE).any() or not len(t) for t in tables):
        return list(ranks)
    rows = [
        {
            int(key): (part["row"].to_numpy(), part["t1"].to_numpy())
            for (key,), part in t.partition_by("group", as_dict=True, maintain_order=True).items()
        }
        for t in sequences([t.with_row_index("row") for t in tables])
    ]
    dropped: list[list[Int64s]] = [[] for _ in ranks]
    for key in sorted(set().union(*rows)):
        holders = [r for r, found in enumerate(rows) if key in found]
        kept = _common([rows[r][key][1] for r in holders])
        for r, part in zip(holders, kept, strict=True):
            numbers = rows[r][key][0].astype(np.int64)
            dropped[r].append(np.concatenate([numbers[: part.start], numbers[part.stop :]]))
    return [_without(rank, d) for rank, d in zip(ranks, dropped, strict=True)]


def _without(rank: RankCollectives, dropped: Sequence[Int64s]) -> RankCollectives:
    if not any(len(part) for part in dropped):
        return rank
    kept = np.setdiff1d(np.arange(len(rank.collectives)), np.concatenate(dropped))
    table = rank.collectives[kept].with_columns(order=pl.int_range(pl.len()).cast(pl.Int64))
    return replace(rank, collectives=table)


def _common(ends: Sequence[Int64s]) -> list[slice]:
    """The part of each rank's collectives that all of them have, by when these end; ns."""
    whole = [slice(0, len(each)) for each in ends]
    if len({len(each) for each in ends}) == 1:
        return whole
    shifts = [0, *(shift_between(ends[0], other) for other in ends[1:])]
    known = [shift for shift in shifts if shift is not None]
    if len(known) < len(ends):
        return whole
    # Number i of the first rank is number i + shift of another.
    first = max(-shift for shift in known)
    last = min(len(each) - shift for each, shift in zip(ends, known, strict=True))
    return [slice(first + shift, last + shift) for shift in known] if last > first else whole


def shift_between(one: Int64s, other: Int64s) -> int | None:
    """By how many the second rank is ahead in the sequence; None where no shift fits.

    Args:
        one, other: when the collectives of a sequence end on two ranks, each on its own clock, ns.
    """
    shorter = min(len(one), len(other))
    if shorter < FEWEST_ALIGNED:
        return None
    # A few that meet by chance would fit better than all that belong together.
    least = max(FEWEST_ALIGNED, shorter // 2)
    shifts = range(least - len(one), len(other) - least + 1)
    nearest = sorted(shifts, key=lambda shift: (abs(shift), shift))[:_MOST_SHIFTS]
    spread = {shift: _spread(one, other, shift) for shift in nearest}
    best = min(nearest, key=lambda shift: spread[shift])
    pace = float(np.median(np.diff(one)))
    return best if spread[best] <= ENDS_TOGETHER * pace else None


def end_together(one: Int64s, other: Int64s) -> bool:
    """Whether matched collectives end together, up to a constant difference of the clocks.

    Args:
        one, other: when they end on two ranks, in the same order, ns.
    """
    if len(one) != len(other) or len(one) < FEWEST_ALIGNED:
        return False
    return _spread(one, other, 0) <= ENDS_TOGETHER * float(np.median(np.diff(one)))


def _spread(one: Int64s, other: Int64s, shift: int) -> float:
    """Deviation of the differences between ends, of nine in ten of the collectives that meet."""
    first, last = max(0, -shift), min(len(one), len(other) - shift)
    apart = other[first + shift : last + shift] - one[first:last]
    return float(np.percentile(np.abs(apart - np.median(apart)), 90))

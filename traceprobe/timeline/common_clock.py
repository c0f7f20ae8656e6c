"""By how much the clocks of ranks differ: a collective ends on all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.rank_collectives import RankCollectives


def clock_offsets(
    ranks: Sequence[RankCollectives],
    matched: Sequence[MatchedCollectives | None],
    sources: Sequence[int],
) -> list[int | None]:
    """How far the clock of each rank is ahead of that of the first one, ns.

    Args:
        matched: the collectives that each shares with others.
        sources: input file of each; ranks of one file have one clock.

    Returns:
        None for a rank of which no collective ends on the first one too.
    """
    ends = [
        {}
        if mine is None
        else dict(
            zip(
                mine.number.tolist(),
                rank.collectives["t1"].to_numpy()[mine.row].tolist(),
                strict=True,
            )
        )
        for rank, mine in zip(ranks, matched, strict=True)
    ]
    offsets: list[int | None] = []
    for found, source in zip(ends, sources, strict=True):
        if source == sources[0]:
            offsets.append(0)
            continue
        apart = [found[n] - ends[0][n] for n in ends[0].keys() & found.keys()]
        offsets.append(int(np.median(apart)) if apart else None)
    return offsets

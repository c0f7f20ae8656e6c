"""Ranks beside each other: the table and the words of their picture."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.report.palette import CLASS_WORDS
from traceprobe.report.result import PARTITION, Rank
from traceprobe.report.tables import Table, steps_divisor
from traceprobe.report.text import NOT_OBSERVED, duration, ms


def ranks_table(ranks: Sequence[Rank]) -> Table:
    """Exclusive time of every rank, a row each."""
    classes = [key for key in PARTITION if any(r.summary.partition_ns[key] for r in ranks)]
    rows = [
        [
            str(rank.rank),
            ms(rank.summary.window_ns / steps_divisor(rank)),
            *(_cell(rank, key) for key in classes),
        ]
        for rank in ranks
    ]
    header = ["rank", "step (ms)", *(f"{CLASS_WORDS[key]} (ms)" for key in classes)]
    return Table("Exclusive time of every rank", "rr" + "r" * len(classes), header, rows)


def _cell(rank: Rank, key: str) -> str:
    value = rank.summary.partition_ns[key]
    return NOT_OBSERVED if value is None else ms(value / steps_divisor(rank))


def ranks_summary(ranks: Sequence[Rank]) -> str:
    """The class in which the ranks differ most, in words."""
    spread = {}
    for key in PARTITION:
        values = [((r.summary.partition_ns[key] or 0) / steps_divisor(r), r.rank) for r in ranks]
        spread[key] = (max(values), min(values))
    key = max(spread, key=lambda k: spread[k][0][0] - spread[k][1][0])
    (most, high), (least, low) = spread[key]
    return (
        f"{len(ranks)} ranks. They differ most in {CLASS_WORDS[key]}: {duration(most)} on rank "
        f"{high}, {duration(least)} on rank {low}."
    )

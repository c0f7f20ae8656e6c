"""Ranks beside each other: the columns of their picture, its table and its words.

A run may have more ranks than a page has pixels: neighbours then share a column, which is their
mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceprobe.formatting import NOT_OBSERVED, duration, ms
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION
from traceprobe.records.rank import Rank
from traceprobe.render.pages.report_tables import Table, steps_divisor

MAX_COLUMNS = 256
"""Times the classes of the partition this stays below the limit of marks of a chart."""


@dataclass(frozen=True)
class RankColumn:
    """One rank, or neighbours in order: mean ns per step, in all and of each class.

    Args:
        partition_ns: None for a class that none of them observed.
    """

    label: str
    step_ns: float
    partition_ns: dict[str, float | None]


def rank_columns(ranks: Sequence[Rank]) -> list[RankColumn]:
    """At most `MAX_COLUMNS` columns, by rank."""
    ordered = sorted(ranks, key=lambda rank: rank.rank)
    together = -(-len(ordered) // MAX_COLUMNS)
    return [_column(ordered[i : i + together]) for i in range(0, len(ordered), together or 1)]


def _column(ranks: Sequence[Rank]) -> RankColumn:
    first, last = ranks[0].rank, ranks[-1].rank
    return RankColumn(
        label=str(first) if len(ranks) == 1 else f"{first}–{last}",
        step_ns=sum(r.summary.window_ns / steps_divisor(r) for r in ranks) / len(ranks),
        partition_ns={key: _mean(ranks, key) for key in PARTITION},
    )


def _mean(ranks: Sequence[Rank], key: str) -> float | None:
    values = [_per_step(r, key) for r in ranks if r.summary.partition_ns[key] is not None]
    return sum(values) / len(ranks) if values else None


def _per_step(rank: Rank, key: str) -> float:
    return (rank.summary.partition_ns[key] or 0) / steps_divisor(rank)


def classes_of(columns: Sequence[RankColumn]) -> list[str]:
    """The classes that any column has time of, in the order of the partition."""
    return [key for key in PARTITION if any(column.partition_ns[key] for column in columns)]


def ranks_table(columns: Sequence[RankColumn]) -> Table:
    """Exclusive time of every column of the picture, a row each."""
    classes = classes_of(columns)
    rows = [
        [column.label, ms(column.step_ns), *(_cell(column, key) for key in classes)]
        for column in columns
    ]
    header = ["rank", "step (ms)", *(f"{CLASS_LABELS[key]} (ms)" for key in classes)]
    caption = "Exclusive time of every rank"
    if any("–" in column.label for column in columns):
        caption += ", means of neighbours"
    return Table(caption, "rr" + "r" * len(classes), header, rows)


def _cell(column: RankColumn, key: str) -> str:
    value = column.partition_ns[key]
    return NOT_OBSERVED if value is None else ms(value)


def ranks_summary(ranks: Sequence[Rank]) -> str:
    """The class in which the ranks differ most, in words."""
    spread = {}
    for key in PARTITION:
        values = [(_per_step(rank, key), rank.rank) for rank in ranks]
        spread[key] = (max(values), min(values))
    key = max(spread, key=lambda k: spread[k][0][0] - spread[k][1][0])
    (most, high), (least, low) = spread[key]
    return (
        f"{len(ranks)} ranks. They differ most in {CLASS_LABELS[key]}: {duration(most)} on rank "
        f"{high}, {duration(least)} on rank {low}."
    )

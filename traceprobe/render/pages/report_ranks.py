"""Ranks beside each other: their classes, each of their steps, groups of similar ones.

A run may have more ranks than a page has pixels: neighbours then share a column or a row, which is
their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from traceprobe.formatting import NOT_OBSERVED, duration, ms, percent, ranges, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION, SHARE_LABELS, SHARES
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.run import Overview, StepMatrix
from traceprobe.render.charts import specification
from traceprobe.render.document import Chart, Table

Item = TypeVar("Item")

MAX_COLUMNS = 256
"""Times the classes of the partition this stays below the limit of marks of a chart."""
MAX_GROUPS = 16
MAX_CELLS = 4800
"""A chart draws fewer than 5,000 marks."""
MAX_STEP_NAME = 40
CLASS_HEIGHT = 22
"""Pixels of a row of the chart of classes."""


def overview_of(report: Report) -> Overview | None:
    """What a run of many ranks says of them together; None where they are few."""
    overview = report.run.overview if report.run is not None else None
    return overview if isinstance(overview, Overview) else None


class RankColumn(msgspec.Struct, frozen=True):
    """One rank, or neighbours in order: mean ns per step, in all and of each class.

    Args:
        partition_ns: None for a class that none of them observed.
    """

    label: str
    step_ns: float
    partition_ns: dict[str, float | None]


def rank_columns(ranks: Sequence[Rank]) -> list[RankColumn]:
    """At most `MAX_COLUMNS` columns, by rank."""
    return [
        RankColumn(
            label=_label([rank.rank for rank in group]),
            step_ns=sum(r.summary.window_ns / r.summary.steps for r in group) / len(group),
            partition_ns={key: _mean(group, key) for key in PARTITION},
        )
        for group in _neighbours(sorted(ranks, key=lambda rank: rank.rank), MAX_COLUMNS)
    ]


def _neighbours(items: Sequence[Item], limit: int) -> Iterator[Sequence[Item]]:
    """At most `limit` runs of items, alike in length."""
    together = -(-len(items) // limit)
    for at in range(0, len(items), together or 1):
        yield items[at : at + together]


def _label(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}–{ranks[-1]}"


def _mean(ranks: Sequence[Rank], key: str) -> float | None:
    values = [_per_step(r, key) for r in ranks if r.summary.partition_ns[key] is not None]
    return sum(values) / len(ranks) if values else None


def _per_step(rank: Rank, key: str) -> float:
    return (rank.summary.partition_ns[key] or 0) / rank.summary.steps


def ranks_chart(report: Report) -> Chart | None:
    """A heat map: ranks across, exclusive classes down, ms per step; None for one rank."""
    ranks = [rank for rank in report.ranks if rank.summary.window_ns]
    if len(ranks) < 2:
        return None
    columns = rank_columns(ranks)
    classes = [key for key in PARTITION if any(c.partition_ns[key] for c in columns)]
    cells = [(c, key, c.partition_ns[key] or 0.0) for key in classes for c in columns]
    shares = [ns / max(column.step_ns, 1) for column, _, ns in cells]
    spec = specification("ranks")
    spec["encoding"]["x"]["sort"] = [column.label for column in columns]
    spec["encoding"]["y"]["sort"] = [CLASS_LABELS[key] for key in classes]
    spec["height"] = CLASS_HEIGHT * len(classes)
    return Chart(
        id="chart-ranks",
        caption="Ranks beside each other",
        summary=_ranks_summary(ranks),
        spec=spec,
        data={
            "cells": {
                "rank": [column.label for column, _, _ in cells],
                "class": [CLASS_LABELS[key] for _, key, _ in cells],
                "share": [round(share, 5) for share in shares],
                "time": [duration(ns) for _, _, ns in cells],
                "part": [percent(share) for share in shares],
            }
        },
        table=_ranks_table(columns, classes),
    )


def _ranks_table(columns: Sequence[RankColumn], classes: Sequence[str]) -> Table:
    rows = [
        [column.label, ms(column.step_ns), *(ms(column.partition_ns[key]) for key in classes)]
        for column in columns
    ]
    head = ["rank", "step (ms)", *(f"{CLASS_LABELS[key]} (ms)" for key in classes)]
    caption = "Exclusive time of every rank"
    if any("–" in column.label for column in columns):
        caption += ", means of neighbours"
    return Table(caption, head, rows, frozenset(range(len(head))))


def _ranks_summary(ranks: Sequence[Rank]) -> str:
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


def groups_table(report: Report, overview: Overview) -> Table:
    """Groups of ranks that agree in step time and shares, each with its median rank's numbers."""
    by_number = {rank.rank: rank for rank in report.ranks}
    rows = []
    for group in overview.groups[:MAX_GROUPS]:
        rank = by_number[group.median_rank]
        rows.append(
            [
                str(len(group.members)),
                ranges(group.members),
                str(rank.rank),
                ms(rank.summary.window_ns / rank.summary.steps),
                *(percent(rank.summary.share.get(key)) for key in SHARES),
            ]
        )
    caption = "Groups of similar ranks"
    if len(overview.groups) > MAX_GROUPS:
        caption += f" ({len(overview.groups) - MAX_GROUPS} more in the embedded data)"
    head = ["ranks", "which", "median rank", "its step (ms)", *(SHARE_LABELS[k] for k in SHARES)]
    return Table(caption, head, rows, frozenset({0, *range(2, len(head))}))


class StepRow(msgspec.Struct, frozen=True):
    """One rank, or neighbours in order: mean ms of every step, None where none was used."""

    label: str
    step_ms: list[float | None]


def step_rows(steps: StepMatrix) -> list[StepRow]:
    """At most so many rows that the picture stays below `MAX_CELLS`."""
    limit = max(MAX_CELLS // max(len(steps.labels), 1), 1)
    found = []
    for group in _neighbours(list(zip(steps.ranks, steps.step_ms, strict=True)), limit):
        ranks, rows = zip(*group, strict=True)
        columns = [[ms for ms in column if ms is not None] for column in zip(*rows, strict=True)]
        means = [sum(column) / len(column) if column else None for column in columns]
        found.append(StepRow(_label(ranks), means))
    return found


def rank_steps_chart(report: Report) -> Chart | None:
    """A heat map: steps across, ranks down, ms of each step; None where ranks are few."""
    overview = overview_of(report)
    if overview is None or not any(ms for row in overview.steps.step_ms for ms in row):
        return None
    steps = overview.steps
    rows = step_rows(steps)
    names = [shorten(f"{n + 1}: {label}", MAX_STEP_NAME) for n, label in enumerate(steps.labels)]
    cells = [
        (row.label, name, ms)
        for row in rows
        for name, ms in zip(names, row.step_ms, strict=True)
        if ms is not None
    ]
    spec = specification("rank_steps")
    spec["encoding"]["x"]["sort"] = names
    spec["encoding"]["y"]["sort"] = [row.label for row in rows]
    spec["height"] = min(max(12 * len(rows), 60), 420)
    texts = [
        [row.label, *(NOT_OBSERVED if ms is None else significant(ms) for ms in row.step_ms)]
        for row in rows
    ]
    head = ["rank", *steps.labels]
    return Chart(
        id="chart-rank-steps",
        caption="Every step of every rank",
        summary=_steps_summary(steps),
        spec=spec,
        data={
            "cells": {
                "rank": [label for label, _, _ in cells],
                "step": [name for _, name, _ in cells],
                "ms": [round(ms, 3) for _, _, ms in cells],
                "time": [duration(ms * 1e6) for _, _, ms in cells],
            }
        },
        table=Table("ms of every step", head, texts, frozenset(range(len(head)))),
    )


def _steps_summary(steps: StepMatrix) -> str:
    """The spread of the steps in words."""
    cells = [
        (ms, rank, label)
        for rank, row in zip(steps.ranks, steps.step_ms, strict=True)
        for label, ms in zip(steps.labels, row, strict=True)
        if ms is not None
    ]
    (low, *_), (high, rank, label) = min(cells), max(cells)
    words = (
        f"{len(steps.ranks)} ranks, {len(steps.labels)} columns: from {significant(low)} to"
        f" {significant(high)} ms, the longest on rank {rank} in {label}."
    )
    if steps.iterations_per_bin > 1:
        words += f" A column is the mean of {steps.iterations_per_bin} iterations."
    return words

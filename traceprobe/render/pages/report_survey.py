"""Many ranks at a glance: groups of similar ones, and how long each step took on each rank."""

from __future__ import annotations

from dataclasses import dataclass

from traceprobe.formatting import NOT_OBSERVED, ms, percent, ranges, significant
from traceprobe.model.taxonomy import SHARE_LABELS, SHARES
from traceprobe.records.report import Report
from traceprobe.records.run import Overview, StepMatrix
from traceprobe.render.pages.report_tables import Table, steps_divisor

MAX_GROUPS = 16
MAX_CELLS = 4800
"""A chart draws fewer than 5,000 marks."""


def overview_of(report: Report) -> Overview | None:
    """What a run of many ranks says of them together; None where they are few."""
    overview = report.run.overview if report.run is not None else None
    return overview if isinstance(overview, Overview) else None


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
                ms(rank.summary.window_ns / steps_divisor(rank)),
                *(percent(rank.summary.share.get(key)) for key in SHARES),
            ]
        )
    caption = "Groups of similar ranks"
    if len(overview.groups) > MAX_GROUPS:
        caption += f" ({len(overview.groups) - MAX_GROUPS} more in the embedded data)"
    header = ["ranks", "which", "median rank", "its step (ms)", *(SHARE_LABELS[k] for k in SHARES)]
    return Table(caption, "rlrr" + "r" * len(SHARES), header, rows)


@dataclass(frozen=True)
class StepRow:
    """One rank, or neighbours in order: mean ms of every step, None where none was used."""

    label: str
    step_ms: list[float | None]


def step_rows(steps: StepMatrix) -> list[StepRow]:
    """At most so many rows that the picture stays below `MAX_CELLS`."""
    limit = max(MAX_CELLS // max(len(steps.labels), 1), 1)
    together = -(-len(steps.ranks) // limit)
    found = []
    for at in range(0, len(steps.ranks), together or 1):
        ranks, rows = steps.ranks[at : at + together], steps.step_ms[at : at + together]
        columns = [[ms for ms in column if ms is not None] for column in zip(*rows, strict=True)]
        means = [sum(column) / len(column) if column else None for column in columns]
        label = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}–{ranks[-1]}"
        found.append(StepRow(label, means))
    return found


def steps_table(steps: StepMatrix, rows: list[StepRow]) -> Table:
    """The numbers of the picture."""
    cells = [
        [row.label, *(NOT_OBSERVED if ms is None else significant(ms) for ms in row.step_ms)]
        for row in rows
    ]
    return Table("ms of every step", "r" * (1 + len(steps.labels)), ["rank", *steps.labels], cells)


def steps_summary(steps: StepMatrix) -> str:
    """The spread of the steps in words."""
    cells = [
        (ms, rank, label)
        for rank, row in zip(steps.ranks, steps.step_ms, strict=True)
        for label, ms in zip(steps.labels, row, strict=True)
        if ms is not None
    ]
    if not cells:
        return "No step was used on any rank."
    (low, *_), (high, rank, label) = min(cells), max(cells)
    words = (
        f"{len(steps.ranks)} ranks, {len(steps.labels)} columns: from {significant(low)} to"
        f" {significant(high)} ms, the longest on rank {rank} in {label}."
    )
    if steps.iterations_per_bin > 1:
        words += f" A column is the mean of {steps.iterations_per_bin} iterations."
    return words

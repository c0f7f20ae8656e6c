"""The bars of the per-iteration picture, its data table and its summary in words.

A long capture has more iterations than a page has pixels: neighbours are then averaged, and the
label of a bar is the range it stands for. Used and skipped iterations never share a bar.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from traceprobe.formatting import NOT_OBSERVED, ms, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION
from traceprobe.records.rank import Iteration, Rank
from traceprobe.render.bars import partition_bar
from traceprobe.render.pages.report_tables import Table


@dataclass(frozen=True)
class IterationBar:
    """One bar: mean ns of each class over the iterations it stands for."""

    label: str
    used: bool
    reason: str
    window_ns: float | None
    partition_ns: dict[str, float]


def iteration_bars(rank: Rank, limit: int) -> list[IterationBar]:
    """The bars in the order of the iterations: up to `limit` spans, two bars where one has both."""
    together = -(-len(rank.iterations) // limit) if rank.iterations else 1
    if together == 1:
        return [_bar([iteration]) for iteration in rank.iterations]
    bars: list[IterationBar] = []
    for start in range(0, len(rank.iterations), together):
        # Sorted by use alone, so that the order of the iterations stays within each part.
        chunk = sorted(rank.iterations[start : start + together], key=lambda i: not i.used)
        bars.extend(_bar(list(group)) for _, group in groupby(chunk, key=lambda i: i.used))
    return bars


def _bar(iterations: list[Iteration]) -> IterationBar:
    first, last = iterations[0], iterations[-1]
    label = str(first.index) if first is last else f"{first.index} to {last.index}"
    measured = [i.partition_ns for i in iterations if i.partition_ns is not None]
    windows = [
        i.end_ns - i.start_ns for i in iterations if i.start_ns is not None and i.end_ns is not None
    ]
    partition = {
        key: sum(partition.get(key) or 0 for partition in measured) / len(measured)
        for key in PARTITION
        if any(partition.get(key) for partition in measured)
    }
    return IterationBar(
        label=label,
        used=first.used,
        reason=shorten(first.skip_reason or "", 200),
        window_ns=sum(windows) / len(windows) if windows else None,
        partition_ns=partition,
    )


def classes_of(bars: list[IterationBar]) -> list[str]:
    """The classes that occur in any bar, in the order of the partition."""
    return [key for key in PARTITION if any(key in bar.partition_ns for bar in bars)]


def iterations_table(bars: list[IterationBar]) -> Table:
    """The numbers behind the picture."""
    classes = classes_of(bars)
    rows = [
        [
            bar.label,
            "yes" if bar.used else f"no: {bar.reason or 'no reason recorded'}",
            ms(bar.window_ns),
            *(
                ms(bar.partition_ns.get(key, 0)) if bar.partition_ns else NOT_OBSERVED
                for key in classes
            ),
        ]
        for bar in bars
    ]
    header = ["iteration", "used", "window (ms)", *(f"{CLASS_LABELS[key]} (ms)" for key in classes)]
    return Table("Exclusive time of every iteration", "rlr" + "r" * len(classes), header, rows)


def iterations_summary(rank: Rank) -> str:
    """What the picture shows, in words."""
    summary = rank.summary
    sentence = f"{summary.iterations_used} of {rank.iteration_count} iterations are used."
    if summary.step_ms is not None:
        step = summary.step_ms
        sentence += (
            f" A step takes {significant(step.mean)} ms in the mean and {significant(step.p50)} ms"
            f" in the median, from {significant(step.p10)} (p10) to {significant(step.p90)} (p90)."
        )
    largest = sorted(partition_bar(summary.partition_ns), key=lambda s: -s.value)[:3]
    if largest:
        sentence += " Most time: " + ", ".join(f"{s.word} {s.percent}" for s in largest) + "."
    return sentence

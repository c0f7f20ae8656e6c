"""Every iteration of a rank as a stacked bar.

A long capture has more iterations than a page has pixels: neighbours are then averaged, and the
label of a bar is the range it stands for. Used and skipped iterations never share a bar.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from traceprobe.formatting import NOT_OBSERVED, duration, ms, percent, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION
from traceprobe.records.rank import Iteration, Rank
from traceprobe.render.bars import partition_bar, segments
from traceprobe.render.charts import specification
from traceprobe.render.colours import CLASS_COLOURS
from traceprobe.render.document import Chart, Columns, Table

MAX_BARS = 140
"""Bars of one chart; times the classes of the partition this stays below the limit of marks."""
PALE = 0.35
"""Opacity of an iteration that is left out of all sums."""


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


def iterations_chart(rank: Rank) -> Chart | None:
    """Stacked bars, one an iteration: ms of each exclusive class; skipped ones pale and crossed.

    None where no iteration has a partition.
    """
    bars = iteration_bars(rank, MAX_BARS)
    classes = [key for key in PARTITION if any(key in bar.partition_ns for bar in bars)]
    if not classes:
        return None
    words = [CLASS_LABELS[key] for key in classes]
    colours = [CLASS_COLOURS[key] for key in classes]
    spec = specification("iterations")
    for layer in spec["layer"]:
        layer["encoding"]["x"]["scale"]["domain"] = [bar.label for bar in bars]
    spec["layer"][0]["encoding"]["color"]["scale"].update(domain=words, range=colours)
    skipped = [bar for bar in bars if not bar.used]
    return Chart(
        id=f"chart-iterations-{rank.rank}",
        caption="Every iteration",
        summary=iterations_summary(rank),
        spec=spec,
        data={
            "segments": _segments(bars),
            "skipped": {
                "iteration": [bar.label for bar in skipped],
                "ms": [round(sum(bar.partition_ns.values()) / 1e6, 6) for bar in skipped],
                "status": [_status(bar) for bar in skipped],
            },
        },
        table=_table(bars, classes),
        legend=list(zip(words, colours, strict=True)),
    )


def _segments(bars: list[IterationBar]) -> Columns:
    parts = [(bar, key, ns) for bar in bars for key, ns in bar.partition_ns.items()]
    return {
        "iteration": [bar.label for bar, _, _ in parts],
        "class": [CLASS_LABELS[key] for _, key, _ in parts],
        "order": [PARTITION.index(key) for _, key, _ in parts],
        "ms": [round(ns / 1e6, 6) for _, _, ns in parts],
        "time": [duration(ns) for _, _, ns in parts],
        "share": [percent(ns / sum(bar.partition_ns.values())) for bar, _, ns in parts],
        "opacity": [1 if bar.used else PALE for bar, _, _ in parts],
        "status": [_status(bar) for bar, _, _ in parts],
    }


def _status(bar: IterationBar) -> str:
    return "used" if bar.used else f"skipped: {bar.reason or 'no reason recorded'}"


def _table(bars: list[IterationBar], classes: list[str]) -> Table:
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
    head = ["iteration", "used", "window (ms)", *(f"{CLASS_LABELS[key]} (ms)" for key in classes)]
    numeric = frozenset({0, *range(2, len(head))})
    return Table("Exclusive time of every iteration", head, rows, numeric)


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
    bar = partition_bar("", summary.partition_ns)
    largest = sorted(segments(bar), key=lambda s: -s.value)[:3]
    if largest:
        sentence += " Most time: " + ", ".join(f"{s.word} {s.text}" for s in largest) + "."
    return sentence

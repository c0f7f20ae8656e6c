"""Iterations over time: every one of a rank as a stacked bar, long ones marked.

A long capture has more iterations than a page has pixels: neighbours are then averaged, and the
label of a bar is the range it stands for. Used and skipped iterations never share a bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from traceprobe.formatting import (
    NOT_OBSERVED,
    counted,
    duration,
    ms,
    ordinal,
    percent,
    shorten,
    significant,
)
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION
from traceprobe.records.rank import Iteration, Rank
from traceprobe.render.charts import specification
from traceprobe.render.colours import CLASS_COLOURS
from traceprobe.render.document import Block, Chart, Columns, Section, Table
from traceprobe.render.pages.report_steps import steps_chart

MAX_BARS = 140
"""Bars of one chart; times the classes of the partition this stays below the limit of marks."""
_HELP = (
    "Each bar is one iteration, stacked of the classes of its time. Pale bars with ✕ are left out "
    "of all sums, with the reason in the table; ▼ marks iterations that do more than the others, "
    "such as an evaluation or a checkpoint. In a long capture a bar is the mean of neighbours."
)
PALE = 0.35
"""Opacity of an iteration that is left out of all sums."""


class IterationBar(msgspec.Struct, frozen=True):
    """One bar: mean ns of each class over the iterations it stands for."""

    label: str
    used: bool
    reason: str
    window_ns: float | None
    partition_ns: dict[str, float]
    long: bool = False


def iteration_bars(rank: Rank, limit: int) -> list[IterationBar]:
    """The bars in the order of the iterations: up to `limit` spans, two bars where one has both."""
    together = -(-len(rank.iterations) // limit) if rank.iterations else 1
    long = long_indices(rank)
    if together == 1:
        return [_bar([iteration], long) for iteration in rank.iterations]
    bars: list[IterationBar] = []
    for start in range(0, len(rank.iterations), together):
        # Sorted by use alone, so that the order of the iterations stays within each part.
        chunk = sorted(rank.iterations[start : start + together], key=lambda i: not i.used)
        bars.extend(_bar(list(group), long) for _, group in groupby(chunk, key=lambda i: i.used))
    return bars


def long_indices(rank: Rank) -> frozenset[int]:
    """Iterations that do more than the others."""
    return frozenset() if isinstance(rank.long, msgspec.UnsetType) else frozenset(rank.long.indices)


def _bar(iterations: list[Iteration], long: frozenset[int]) -> IterationBar:
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
        long=any(iteration.index in long for iteration in iterations),
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
    data = {
        "segments": _segments(bars),
        "skipped": _marks([bar for bar in bars if not bar.used]),
        "long": _marks([bar for bar in bars if bar.used and bar.long]),
    }
    # Vega warns of layers without rows.
    data = {name: columns for name, columns in data.items() if columns["iteration"]}
    spec["layer"] = [layer for layer in spec["layer"] if layer["data"]["name"] in data]
    return Chart(
        id=f"chart-iterations-{rank.rank}",
        caption="Iterations over time",
        summary=iterations_summary(rank),
        spec=spec,
        data=data,
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


def _marks(bars: list[IterationBar]) -> Columns:
    """Where a mark stands above a bar, and why."""
    return {
        "iteration": [bar.label for bar in bars],
        "ms": [round(sum(bar.partition_ns.values()) / 1e6, 6) for bar in bars],
        "status": [_status(bar) for bar in bars],
    }


def _status(bar: IterationBar) -> str:
    if not bar.used:
        return f"skipped: {bar.reason or 'no reason recorded'}"
    return "used; does more than the others" if bar.long else "used"


def _used(bar: IterationBar) -> str:
    if not bar.used:
        return f"no: {bar.reason or 'no reason recorded'}"
    return "yes, long" if bar.long else "yes"


def _table(bars: list[IterationBar], classes: list[str]) -> Table:
    rows = [
        [
            bar.label,
            _used(bar),
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
    verb = "is" if rank.iteration_count == 1 else "are"
    sentence = (
        f"{summary.iterations_used} of {counted(rank.iteration_count, 'iteration')} {verb} used"
    )
    if summary.iterations_used < len(rank.iterations):
        sentence += "; those with ✕ are left out of all sums"
    sentence += "."
    if summary.step_ms is not None:
        step = summary.step_ms
        sentence += (
            f" A step takes {significant(step.mean)} ms in the mean and {significant(step.p50)} ms"
            f" in the median, from {significant(step.p10)} (p10) to {significant(step.p90)} (p90)."
        )
    return f"{sentence} {long_sentence(rank)}".strip()


def long_sentence(rank: Rank) -> str:
    """Which iterations do more than the others, and how much longer they take; often empty."""
    if isinstance(rank.long, msgspec.UnsetType):
        return ""
    long = rank.long
    count = len(long.indices)
    which = f"Iteration {long.indices[0]} does" if count == 1 else f"{count} iterations do"
    every = f", every {ordinal(long.every)}" if long.every and count > 1 else ""
    extra = duration(long.extra_ns / max(count, 1))
    return f"{which} more than the others (▼){every}: {extra} longer{' each' * (count > 1)}."


def iterations_section(ranks: Sequence[Rank]) -> Section | None:
    """The chart of the first rank, and folded the histogram and those of the others."""
    drawn = [(rank, chart) for rank in ranks if (chart := iterations_chart(rank)) is not None]
    if not drawn:
        return None
    several = len(drawn) > 1
    of = f" of rank {drawn[0][0].rank}" if several else ""
    title = f"Iterations{of} over time"
    blocks: list[Block] = []
    for n, (rank, chart) in enumerate(drawn):
        steps = steps_chart(rank)
        inside = [chart, *([steps] if steps is not None else [])]
        if n == 0:
            blocks.append(replace(chart, caption=title))
            if steps is not None:
                times = Section(
                    "steps", "How long a step takes", blocks=[steps], folded=True, brief=False
                )
                blocks.append(times)
        else:
            words = f"Rank {rank.rank}: {_step_time(rank)}"
            blocks.append(Section(f"iterations-{rank.rank}", words, blocks=inside, folded=True))
    return Section("iterations", title, blocks=blocks, help=_HELP, nav="Iterations")


def _step_time(rank: Rank) -> str:
    step = rank.summary.step_ms
    if step is None:
        return counted(rank.iteration_count, "iteration")
    return f"{significant(step.p50)} ms a step in the median"

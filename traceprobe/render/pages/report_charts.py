"""The charts of the page: specifications in Vega-Lite and the data that they name.

`specs.py` writes the specs with altair; what differs between reports is filled in
here. The rows travel beside a spec as parallel arrays, which the page's script turns into rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from traceprobe.formatting import duration, percent, shorten, significant
from traceprobe.model.taxonomy import CLASS_LABELS, PARTITION
from traceprobe.records.run import StepMatrix
from traceprobe.records.summary import StepTimes
from traceprobe.render.colours import CLASS_COLOURS
from traceprobe.render.pages.report_iterations import IterationBar, classes_of
from traceprobe.render.pages.report_ranks import RankColumn
from traceprobe.render.pages.report_ranks import classes_of as classes_of_ranks
from traceprobe.render.pages.report_steps import Histogram
from traceprobe.render.pages.report_survey import StepRow
from traceprobe.render.resources import templates_dir

Columns = dict[str, list[Any]]
MAX_TICKS = 5
"""Lines across a chart of counts, which has no use for fractions."""


@dataclass(frozen=True)
class Chart:
    """A spec, the datasets that it names and the legend that the page draws for it."""

    id: str
    description: str
    spec: dict[str, Any]
    data: dict[str, Columns]
    legend: list[tuple[str, str]]
    """Word and colour."""

    @property
    def marks(self) -> int:
        """How many rows the chart draws."""
        return sum(len(next(iter(columns.values()))) for columns in self.data.values())


def iterations_chart(chart_id: str, bars: list[IterationBar], description: str) -> Chart:
    """Stacked bars, one an iteration: ms of each exclusive class; skipped ones pale and crossed."""
    classes = classes_of(bars)
    words = [CLASS_LABELS[key] for key in classes]
    colours = [CLASS_COLOURS[key] for key in classes]
    spec = _specification("iterations")
    for layer in spec["layer"]:
        layer["encoding"]["x"]["scale"]["domain"] = [bar.label for bar in bars]
    spec["layer"][0]["encoding"]["color"]["scale"].update(domain=words, range=colours)
    return Chart(
        id=chart_id,
        description=description,
        spec=spec,
        data={"segments": _segment_columns(bars), "skipped": _skipped_columns(bars)},
        legend=list(zip(words, colours, strict=True)),
    )


def _segment_columns(bars: list[IterationBar]) -> Columns:
    columns: Columns = {
        name: []
        for name in ("iteration", "class", "order", "ms", "time", "share", "opacity", "status")
    }
    for bar in bars:
        total = sum(bar.partition_ns.values())
        for key, value in bar.partition_ns.items():
            columns["iteration"].append(bar.label)
            columns["class"].append(CLASS_LABELS[key])
            columns["order"].append(PARTITION.index(key))
            columns["ms"].append(round(value / 1e6, 6))
            columns["time"].append(duration(value))
            columns["share"].append(percent(value / total))
            columns["opacity"].append(1 if bar.used else 0.35)
            columns["status"].append(_status(bar))
    return columns


def _skipped_columns(bars: list[IterationBar]) -> Columns:
    skipped = [bar for bar in bars if not bar.used]
    return {
        "iteration": [bar.label for bar in skipped],
        "ms": [round(sum(bar.partition_ns.values()) / 1e6, 6) for bar in skipped],
        "status": [_status(bar) for bar in skipped],
    }


def _status(bar: IterationBar) -> str:
    return "used" if bar.used else f"skipped: {bar.reason or 'no reason recorded'}"


def steps_chart(chart_id: str, found: Histogram, step: StepTimes, description: str) -> Chart:
    """Steps by duration, with lines at the median and where the outer tenths begin."""
    most = max(found.counts)
    spec = _specification("steps")
    ticks = [*range(0, most + 1, -(-most // MAX_TICKS))]
    spec["layer"][0]["encoding"]["y"]["axis"]["values"] = ticks
    # The texts would lie on each other where the steps are alike: then the median alone.
    spread = step.p90 - step.p10 > 0.2 * (found.edges[-1] - found.edges[0])
    named = {"median": step.p50, **({"p10": step.p10, "p90": step.p90} if spread else {})}
    bins: Columns = {
        "from": [round(edge, 6) for edge in found.edges[:-1]],
        "to": [round(edge, 6) for edge in found.edges[1:]],
        "steps": list(found.counts),
        "range": [
            f"{significant(low)} to {significant(high)} ms" for low, high in pairwise(found.edges)
        ],
    }
    return Chart(
        id=chart_id,
        description=description,
        spec=spec,
        data={"bins": bins, "marks": {"what": list(named), "ms": list(named.values())}},
        legend=[],
    )


def ranks_chart(chart_id: str, ranks: Sequence[RankColumn], description: str) -> Chart:
    """A heat map: ranks across, exclusive classes down, ms per step."""
    columns = _rank_cells(ranks)
    order = [CLASS_LABELS[key] for key in PARTITION if CLASS_LABELS[key] in columns["class"]]
    spec = _specification("ranks")
    spec["encoding"]["x"]["sort"] = [column.label for column in ranks]
    spec["encoding"]["y"]["sort"] = order
    spec["height"] = 22 * len(order)
    return Chart(
        id=chart_id,
        description=description,
        spec=spec,
        data={"cells": columns},
        legend=[],
    )


def rank_steps_chart(
    chart_id: str, steps: StepMatrix, rows: Sequence[StepRow], description: str
) -> Chart:
    """A heat map: steps across, ranks down, ms of each step."""
    names = [f"{n + 1}: {label}" for n, label in enumerate(steps.labels)]
    cells: Columns = {name: [] for name in ("rank", "step", "ms", "time")}
    for row in rows:
        for name, ms in zip(names, row.step_ms, strict=True):
            if ms is not None:
                cells["rank"].append(row.label)
                cells["step"].append(shorten(name, 40))
                cells["ms"].append(round(ms, 3))
                cells["time"].append(duration(ms * 1e6))
    spec = _specification("rank_steps")
    spec["encoding"]["x"]["sort"] = [shorten(name, 40) for name in names]
    spec["encoding"]["y"]["sort"] = [row.label for row in rows]
    spec["height"] = min(max(12 * len(rows), 60), 420)
    return Chart(id=chart_id, description=description, spec=spec, data={"cells": cells}, legend=[])


def _rank_cells(ranks: Sequence[RankColumn]) -> Columns:
    cells: Columns = {name: [] for name in ("rank", "class", "share", "time", "part")}
    for key in classes_of_ranks(ranks):
        for column in ranks:
            value = column.partition_ns[key] or 0.0
            share = value / max(column.step_ns, 1)
            cells["rank"].append(column.label)
            cells["class"].append(CLASS_LABELS[key])
            cells["share"].append(round(share, 5))
            cells["time"].append(duration(value))
            cells["part"].append(percent(share))
    return cells


def _specification(name: str) -> dict[str, Any]:
    """A spec of its own to fill in."""
    specs: dict[str, dict[str, Any]] = msgspec.json.decode(
        (templates_dir() / "charts.json").read_bytes()
    )
    return specs[name]

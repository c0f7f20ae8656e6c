"""Chart specifications in Vega-Lite, written with altair.

A spec names its data and holds none; the rows travel beside it as parallel arrays, which the page's
script turns into rows. Text and axes are drawn in `currentColor`, so that a chart follows the theme
of the page and turns black in print without being drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from traceprobe.report.iterations import IterationBar, classes_of
from traceprobe.report.palette import CLASS_COLOURS, CLASS_WORDS, SHARE_COLOURS
from traceprobe.report.ranks import RankColumn
from traceprobe.report.ranks import classes_of as classes_of_ranks
from traceprobe.report.result import PARTITION, StepTimes
from traceprobe.report.steps import Histogram
from traceprobe.report.text import duration, percent, significant

if TYPE_CHECKING:
    import altair as alt

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
    import altair as alt

    classes = classes_of(bars)
    words = [CLASS_WORDS[key] for key in classes]
    colours = [CLASS_COLOURS[key] for key in classes]
    x = alt.X(
        "iteration:N",
        title="iteration",
        scale=alt.Scale(domain=[bar.label for bar in bars], paddingInner=0.15),
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=6),
    )
    stack = (
        alt.Chart(alt.NamedData(name="segments"))
        .mark_bar()
        .encode(
            x=x,
            y=alt.Y("ms:Q", title="ms", stack="zero"),
            color=alt.Color("class:N", scale=alt.Scale(domain=words, range=colours), legend=None),
            order=alt.Order("order:Q"),
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            tooltip=[
                alt.Tooltip(field)
                for field in ("iteration:N", "class:N", "time:N", "share:N", "status:N")
            ],
        )
    )
    crosses = (
        alt.Chart(alt.NamedData(name="skipped"))
        .mark_text(text="✕", baseline="bottom", dy=-3, color="currentColor", fontWeight="bold")
        .encode(
            x=x,
            y=alt.Y("ms:Q"),
            tooltip=[alt.Tooltip(field) for field in ("iteration:N", "status:N")],
        )
    )
    chart = alt.layer(stack, crosses).properties(height=260)
    return Chart(
        id=chart_id,
        description=description,
        spec=_specification(chart),
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
            columns["class"].append(CLASS_WORDS[key])
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
    import altair as alt

    most = max(found.counts)
    ticks = [*range(0, most + 1, -(-most // MAX_TICKS))]
    bars = (
        alt.Chart(alt.NamedData(name="bins"))
        .mark_bar(color=SHARE_COLOURS["compute"], binSpacing=1)
        .encode(
            x=alt.X(
                "from:Q",
                bin="binned",
                title="ms",
                scale=alt.Scale(zero=False),
                axis=alt.Axis(tickCount=8, labelOverlap="greedy"),
            ),
            x2="to:Q",
            y=alt.Y("steps:Q", title="steps", axis=alt.Axis(values=ticks, format="d")),
            tooltip=[alt.Tooltip("range:N"), alt.Tooltip("steps:Q")],
        )
    )
    marks = alt.Chart(alt.NamedData(name="marks"))
    lines = marks.mark_rule(color="currentColor", strokeDash=[4, 3]).encode(x="ms:Q")
    words = marks.mark_text(align="left", dx=4, dy=4, baseline="top", color="currentColor").encode(
        x="ms:Q", y=alt.value(0), text="what:N"
    )
    # The texts would lie on each other where the steps are alike: then the median alone.
    spread = step.p90 - step.p10 > 0.2 * (found.edges[-1] - found.edges[0])
    named = {"median": step.p50, **({"p10": step.p10, "p90": step.p90} if spread else {})}
    return Chart(
        id=chart_id,
        description=description,
        spec=_specification(alt.layer(bars, lines, words).properties(height=160)),
        data={
            "bins": {
                "from": [round(edge, 6) for edge in found.edges[:-1]],
                "to": [round(edge, 6) for edge in found.edges[1:]],
                "steps": list(found.counts),
                "range": [
                    f"{significant(low)} to {significant(high)} ms"
                    for low, high in pairwise(found.edges)
                ],
            },
            "marks": {"what": list(named), "ms": list(named.values())},
        },
        legend=[],
    )


def ranks_chart(chart_id: str, ranks: Sequence[RankColumn], description: str) -> Chart:
    """A heat map: ranks across, exclusive classes down, ms per step."""
    import altair as alt

    columns = _rank_cells(ranks)
    order = [CLASS_WORDS[key] for key in PARTITION if CLASS_WORDS[key] in columns["class"]]
    chart = (
        alt.Chart(alt.NamedData(name="cells"))
        .mark_rect()
        .encode(
            x=alt.X(
                "rank:N",
                title="rank",
                sort=[column.label for column in ranks],
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy"),
            ),
            y=alt.Y("class:N", title=None, sort=order, axis=alt.Axis(labelLimit=150)),
            color=alt.Color(
                "share:Q",
                scale=alt.Scale(scheme="blues", domain=[0, 1]),
                legend=alt.Legend(
                    title="of the step",
                    format=".0%",
                    labelColor="currentColor",
                    titleColor="currentColor",
                ),
            ),
            tooltip=[alt.Tooltip(field) for field in ("rank:N", "class:N", "time:N", "part:N")],
        )
        .properties(height=22 * len(order))
    )
    return Chart(
        id=chart_id,
        description=description,
        spec=_specification(chart),
        data={"cells": columns},
        legend=[],
    )


def _rank_cells(ranks: Sequence[RankColumn]) -> Columns:
    cells: Columns = {name: [] for name in ("rank", "class", "share", "time", "part")}
    for key in classes_of_ranks(ranks):
        for column in ranks:
            value = column.partition_ns[key] or 0.0
            share = value / max(column.step_ns, 1)
            cells["rank"].append(column.label)
            cells["class"].append(CLASS_WORDS[key])
            cells["share"].append(round(share, 5))
            cells["time"].append(duration(value))
            cells["part"].append(percent(share))
    return cells


def _specification(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> dict[str, Any]:
    """The finished spec; the page's script sets the width."""
    import altair as alt

    faint = {"gridColor": "currentColor", "gridOpacity": 0.15}
    lines = {"domainColor": "currentColor", "tickColor": "currentColor"}
    texts = {"labelColor": "currentColor", "titleColor": "currentColor"}
    spec: dict[str, Any] = (
        chart.properties(width=640, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**faint, **lines, **texts, labelFontSize=12, titleFontSize=12)
        .to_dict(validate=False)  # the tests validate; a page has up to sixteen charts
    )
    return spec

"""Chart specifications in Vega-Lite, written with altair.

A spec names its data and holds none; the rows travel beside it as parallel arrays, which the page's
script turns into rows. Text and axes are drawn in `currentColor`, so that a chart follows the theme
of the page and turns black in print without being drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceprobe.report.iterations import IterationBar, classes_of
from traceprobe.report.lanes import TimelinePicture, label_word
from traceprobe.report.palette import BUSY_WORDS, CLASS_COLOURS, CLASS_WORDS, OTHER_COLOUR
from traceprobe.report.result import PARTITION
from traceprobe.report.text import duration, percent

if TYPE_CHECKING:
    import altair as alt

MAX_MARKS = 4800
"""Above this a chart in SVG is slow to draw and to move."""

LANE_HEIGHT = 26
"""Pixels."""

Columns = dict[str, list[Any]]


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


def timeline_chart(chart_id: str, picture: TimelinePicture, description: str) -> Chart:
    """One row a lane, one rectangle a segment; colours only for the classes of the partition."""
    import altair as alt

    present = {segment.label for segment in picture.segments}
    legend = [(BUSY_WORDS[key], CLASS_COLOURS[key]) for key in PARTITION if key in present]
    if present - set(PARTITION):
        legend.append(("other", OTHER_COLOUR))
    zoom = alt.selection_interval(
        name="zoom",
        bind="scales",
        encodings=["x"],
        # The bare wheel scrolls the page.
        zoom="wheel![event.shiftKey || event.ctrlKey]",
    )
    chart = (
        alt.Chart(alt.NamedData(name="lanes"))
        .mark_bar(clip=True, minBandSize=4, aria=False)
        .encode(
            x=alt.X(
                "start:Q",
                title="ms after the start of the picture",
                scale=alt.Scale(domain=[0, picture.duration_ns / 1e6], nice=False),
                axis=alt.Axis(tickCount=8, labelOverlap=True, labelSeparation=8),
            ),
            x2=alt.X2("end:Q"),
            y=alt.Y(
                "lane:N",
                title=None,
                scale=alt.Scale(domain=picture.lanes, paddingInner=0.2),
                axis=alt.Axis(labelLimit=110),
            ),
            color=alt.Color(
                "class:N",
                scale=alt.Scale(
                    domain=[word for word, _ in legend], range=[colour for _, colour in legend]
                ),
                legend=None,
            ),
            tooltip=[
                alt.Tooltip(field)
                for field in ("lane:N", "what:N", "detail:N", "starts:N", "takes:N")
            ],
        )
        .properties(height=LANE_HEIGHT * len(picture.lanes))
        .add_params(zoom)
    )
    return Chart(
        id=chart_id,
        description=description,
        spec=_specification(chart),
        data={"lanes": _lane_columns(picture)},
        legend=legend,
    )


def _lane_columns(picture: TimelinePicture) -> Columns:
    segments = picture.segments
    return {
        "lane": [s.lane for s in segments],
        "start": [round(s.start_ns / 1e6, 6) for s in segments],
        "end": [round((s.start_ns + s.duration_ns) / 1e6, 6) for s in segments],
        "class": [BUSY_WORDS.get(s.label, "other") for s in segments],
        "what": [label_word(s.label) for s in segments],
        "detail": [s.detail for s in segments],
        "starts": [f"{s.start_ns / 1e6:,.3f} ms" for s in segments],
        "takes": [duration(s.duration_ns) for s in segments],
    }


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

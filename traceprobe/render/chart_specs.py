"""The chart specifications of the page, in Vega-Lite, made with altair.

    python -m traceprobe.render.chart_specs   # writes templates/charts.json

A specification names its data and holds none, so but for a few lists, titles and a height it is the
same on every page. The pages fill those in, from the file that this module writes: that saves every
run the import of altair, which takes longer than reading a small trace. Text and axes are drawn in
`currentColor`, so that a chart follows the theme of the page and turns black in print without being
drawn again.
"""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from traceprobe.render.colours import SHARE_COLOURS
from traceprobe.render.resources import templates_dir

NAME = "charts.json"
MARK: dict[str, Any] = {"color": "currentColor", "strokeDash": [4, 3]}
"""A line across a chart, dashed."""
TEXTS: dict[str, Any] = {"labelColor": "currentColor", "titleColor": "currentColor"}
Chart = alt.Chart | alt.LayerChart | alt.FacetChart


def iterations() -> Chart:
    """Stacked bars, one an iteration: ms of each class; skipped ones crossed, long ones marked."""
    x = alt.X(
        "iteration:N",
        title="iteration",
        scale=alt.Scale(domain=[], paddingInner=0.15),
        axis=_across(labelSeparation=6),
    )
    stack = (
        alt.Chart(alt.NamedData(name="segments"))
        .mark_bar()
        .encode(
            x=x,
            y=alt.Y("ms:Q", title="ms", stack="zero"),
            color=alt.Color("class:N", scale=alt.Scale(domain=[], range=[]), legend=None),
            order="order:Q",
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            tooltip=["iteration:N", "class:N", "time:N", "share:N", "status:N"],
        )
    )
    crosses = (
        alt.Chart(alt.NamedData(name="skipped"))
        .mark_text(text="✕", baseline="bottom", dy=-3, color="currentColor", fontWeight="bold")
        .encode(x=x, y="ms:Q", tooltip=["iteration:N", "status:N"])
    )
    long = (
        alt.Chart(alt.NamedData(name="long"))
        .mark_text(text="▼", baseline="bottom", dy=-3, color="currentColor")
        .encode(x=x, y="ms:Q", tooltip=["iteration:N", "status:N"])
    )
    return alt.layer(stack, crosses, long).properties(height=190)


def ranks() -> Chart:
    """A heat map: ranks across, exclusive classes down, ms per step."""
    return _heat_map(
        x=alt.X("rank:N", title="rank", sort=[], axis=_across()),
        y=alt.Y("class:N", title=None, sort=[], axis=alt.Axis(labelLimit=150)),
        color=alt.Color(
            "share:Q",
            scale=alt.Scale(scheme="blues", domain=[0, 1]),
            legend=alt.Legend(title="of the step", format=".0%", **TEXTS),
        ),
        tooltip=["rank:N", "class:N", "time:N", "part:N"],
    )


def rank_steps() -> Chart:
    """A heat map: steps across, ranks down, ms of each step."""
    return _heat_map(
        x=alt.X("step:N", title="step", sort=[], axis=_across(labelLimit=90)),
        y=alt.Y("rank:N", title="rank", sort=[], axis=alt.Axis(labelOverlap="greedy")),
        color=alt.Color(
            "ms:Q",
            scale=alt.Scale(scheme="blues", zero=False),
            legend=alt.Legend(title="ms", **TEXTS),
        ),
        tooltip=["rank:N", "step:N", "time:N"],
    )


def _heat_map(**channels: Any) -> alt.Chart:
    """One rectangle a cell; the page sets the height, by the rows."""
    chart: alt.Chart = alt.Chart(alt.NamedData(name="cells")).mark_rect().encode(**channels)
    return chart.properties(height=0)


def _across(**more: Any) -> alt.Axis:
    """The horizontal axis of bars or cells: names that fit, upright."""
    return alt.Axis(labelAngle=0, labelOverlap="greedy", **more)


def steps() -> Chart:
    """Steps by duration, with lines at the median and where the outer tenths begin."""
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
            y=alt.Y("steps:Q", title="steps", axis=alt.Axis(values=[], format="d")),
            tooltip=["range:N", "steps:Q"],
        )
    )
    marks = alt.Chart(alt.NamedData(name="marks"))
    lines = marks.mark_rule(**MARK).encode(x="ms:Q")
    words = marks.mark_text(align="left", dx=4, dy=4, baseline="top", color="currentColor").encode(
        x="ms:Q", y=alt.value(0), text="what:N"
    )
    return alt.layer(bars, lines, words).properties(height=160)


def curves(scale: alt.Scale) -> Chart:
    """Lines over one pair of axes, dashed where they are modelled; what was measured has marks."""
    named = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X("x:Q", title="", scale=scale, axis=alt.Axis(format=",~r", labelOverlap="greedy")),
        y=alt.Y("y:Q", title="", scale=scale, axis=alt.Axis(format=",~r")),
        color=alt.Color("line:N", scale=alt.Scale(domain=[], range=[]), legend=None),
        tooltip=["name:N", "x:Q", "y:Q"],
    )
    lines = named.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash(
            "kind:N",
            scale=alt.Scale(domain=["measured", "modelled"], range=[[1, 0], [7, 5]]),
            legend=None,
        )
    )
    marks = named.mark_point(filled=True, size=40, opacity=1).transform_filter(
        alt.FieldEqualPredicate(field="kind", equal="measured")
    )
    return alt.layer(lines, marks).properties(height=240)


def memory() -> Chart:
    """What a step holds, piled up: parts in GiB from left to right, with a line at the peak."""
    x = alt.X("at:Q", title="", scale=alt.Scale(zero=False, nice=False))
    areas = (
        alt.Chart(alt.NamedData(name="parts"))
        .mark_area()
        .encode(
            x=x,
            y=alt.Y("GiB:Q", title="GiB", stack="zero"),
            color=alt.Color("part:N", scale=alt.Scale(domain=[], range=[]), legend=None),
            order="order:Q",
        )
    )
    peak = alt.Chart(alt.NamedData(name="peak")).mark_rule(**MARK).encode(x=x)
    phases = (
        alt.Chart(alt.NamedData(name="phases"))
        .mark_text(baseline="bottom", dy=-4, color="currentColor", clip=False)
        .encode(x=x, y=alt.value(0), text="phase:N")
    )
    return alt.layer(areas, peak, phases).properties(height=200)


def run() -> Chart:
    """Steps of a run over time: from shortest to longest, their median, and marks of events."""
    at = alt.X("at:Q", title="s", scale=alt.Scale(zero=True, nice=False))
    steps = alt.Chart(alt.NamedData(name="steps")).encode(x=at)
    colour = SHARE_COLOURS["compute"]
    ms = alt.Y("least:Q", title="ms", scale=alt.Scale(type="log", nice=False))
    band = steps.mark_area(color=colour, opacity=0.25).encode(y=ms, y2="most:Q")
    median = steps.mark_line(color=colour, strokeWidth=1.5).encode(
        y="median:Q", tooltip=["step:Q", "at:Q", "least:Q", "median:Q", "most:Q"]
    )
    events = (
        alt.Chart(alt.NamedData(name="events"))
        .mark_point(filled=True, size=45, opacity=0.9, shape="triangle-down")
        .encode(
            x=at,
            y="ms:Q",
            color=alt.Color("cause:N", scale=alt.Scale(domain=[], range=[]), legend=None),
            tooltip=["cause:N", "step:Q", "at:Q", "ms:Q"],
        )
    )
    changes = alt.Chart(alt.NamedData(name="changes")).mark_rule(**MARK).encode(x=at)
    return alt.layer(band, median, changes, events).properties(height=220)


def specification(chart: Chart) -> dict[str, Any]:
    """The finished specification; the page's script sets the width."""
    faint = {"gridColor": "currentColor", "gridOpacity": 0.15}
    lines = {"domainColor": "currentColor", "tickColor": "currentColor"}
    spec: dict[str, Any] = (
        chart.properties(width=640, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**faint, **lines, **TEXTS, labelFontSize=12, titleFontSize=12)
        .to_dict()
    )
    return spec


def render() -> str:
    """The text of the file."""
    charts: dict[str, Chart] = {
        "iterations": iterations(),
        "ranks": ranks(),
        "steps": steps(),
        "rank_steps": rank_steps(),
        "curves": curves(alt.Scale(zero=True, nice=True)),
        "curves_log": curves(alt.Scale(type="log", base=2, nice=False)),
        "memory": memory(),
        "run": run(),
    }
    specs = {name: specification(chart) for name, chart in charts.items()}
    return json.dumps(specs, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (templates_dir() / NAME).write_text(render(), encoding="utf-8")

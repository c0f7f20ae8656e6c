"""Write the chart specifications of the page, in Vega-Lite, with altair.

    python scripts/write_charts.py           # writes templates/charts.json
    python scripts/write_charts.py --check   # exit 1 if that file is not what would be written

A spec names its data and holds none, so but for a few lists and a height it is the same on every
page. `traceprobe/report/charts.py` fills those in; that saves every run the import of altair, which
takes longer than reading a small trace. Text and axes are drawn in `currentColor`, so that a chart
follows the theme of the page and turns black in print without being drawn again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

TARGET = Path(__file__).resolve().parents[1] / "templates" / "charts.json"


def iterations() -> alt.LayerChart:
    """Stacked bars, one an iteration: ms of each exclusive class; skipped ones pale and crossed."""
    x = alt.X(
        "iteration:N",
        title="iteration",
        scale=alt.Scale(domain=[], paddingInner=0.15),
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=6),
    )
    stack = (
        alt.Chart(alt.NamedData(name="segments"))
        .mark_bar()
        .encode(
            x=x,
            y=alt.Y("ms:Q", title="ms", stack="zero"),
            color=alt.Color("class:N", scale=alt.Scale(domain=[], range=[]), legend=None),
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
    return alt.layer(stack, crosses).properties(height=260)


def ranks() -> alt.Chart:
    """A heat map: ranks across, exclusive classes down, ms per step."""
    return (
        alt.Chart(alt.NamedData(name="cells"))
        .mark_rect()
        .encode(
            x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("class:N", title=None, sort=[], axis=alt.Axis(labelLimit=150)),
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
            tooltip=[alt.Tooltip(field) for field in ("rank:O", "class:N", "time:N", "part:N")],
        )
        .properties(height=0)
    )


def specification(chart: alt.Chart | alt.LayerChart) -> dict[str, Any]:
    """The finished spec; the page's script sets the width."""
    faint = {"gridColor": "currentColor", "gridOpacity": 0.15}
    lines = {"domainColor": "currentColor", "tickColor": "currentColor"}
    texts = {"labelColor": "currentColor", "titleColor": "currentColor"}
    spec: dict[str, Any] = (
        chart.properties(width=640, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(**faint, **lines, **texts, labelFontSize=12, titleFontSize=12)
        .to_dict()
    )
    return spec


def render() -> str:
    """The text of the file."""
    charts = {"iterations": iterations(), "ranks": ranks()}
    specs = {name: specification(chart) for name, chart in charts.items()}
    return json.dumps(specs, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file, or compare it."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{TARGET.name} is out of date; run scripts/write_charts.py")
        return
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Vega-Lite charts of a page: a specification that altair wrote ahead of time, and its data.

`chart_specs` writes the specifications; what differs between records is filled in by the pages.
The rows travel beside a specification as parallel columns, which the page's script turns into rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from traceprobe.formatting import shorten, significant
from traceprobe.render.bars import LEAST, MOST, number
from traceprobe.render.document import Chart, Table
from traceprobe.render.resources import templates_dir

LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#94801f")
"""For the lines of one chart, in turn; like the palette's, after Okabe and Ito."""
MAX_NAME = 160
MAX_TICKS = 7
"""Intervals of an axis that doubles."""


class Line(msgspec.Struct, frozen=True):
    """A curve: points (x, y), drawn dashed where it is a model or an ideal, not a measurement."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def specification(name: str) -> dict[str, Any]:
    """A specification of its own to fill in, by its name in `charts.json`."""
    specs: dict[str, dict[str, Any]] = msgspec.json.decode(
        (templates_dir() / "charts.json").read_bytes()
    )
    return specs[name]


def curves(
    chart_id: str, caption: str, x: str, y: str, lines: Sequence[Line], *, log: bool = False
) -> Chart | Table:
    """Curves over one pair of axes, titled `x` and `y`; only their table where nothing is to draw.

    Args:
        log: whether the axes double; else both begin at 0.
    """
    caption, x, y = (shorten(text, MAX_NAME) for text in (caption, x, y))
    table = _table(caption, f"{y} by {x}", lines)
    shown = [
        Line(shorten(line.name, MAX_NAME), _drawn(line, log=log), line.dashed) for line in lines
    ]
    if not any(line.points for line in shown):
        return table
    colours = [LINE_COLOURS[n % len(LINE_COLOURS)] for n in range(len(lines))]
    spec = specification("curves_log" if log else "curves")
    for layer in spec["layer"]:
        for n, (axis, title) in enumerate((("x", x), ("y", y))):
            values = [at[n] for line in shown for at in line.points]
            encoding = layer["encoding"][axis]
            encoding["title"] = title
            if log:
                powers = _powers_of_two(values)
                encoding["scale"]["domain"] = [powers[0], powers[-1]]
                encoding["axis"]["values"] = powers
            elif all(value == int(value) for value in values):
                encoding["axis"]["tickMinStep"] = 1
        # By number: two lines may have one name.
        layer["encoding"]["color"]["scale"].update(domain=[*range(len(lines))], range=colours)
    points = [(n, line, at) for n, line in enumerate(shown) for at in line.points]
    ends = [
        f"{line.name}: {number(first[1])} at {number(first[0])} to {number(last[1])} at"
        f" {number(last[0])}."
        for line in shown
        if line.points
        for first, last in [(line.points[0], line.points[-1])]
    ]
    notes = ["each mark of an axis is a power of 2"] if log else []
    notes += ["dashed: a model or an ideal, not measured"] if any(n.dashed for n in lines) else []
    return Chart(
        id=chart_id,
        caption=caption,
        summary="; ".join(notes),
        description=f"{caption}: {y} over {x}. {' '.join(ends)} The data table has every point.",
        spec=spec,
        data={
            "points": {
                "line": [n for n, _, _ in points],
                "name": [line.name for _, line, _ in points],
                "kind": ["modelled" if line.dashed else "measured" for _, line, _ in points],
                "x": [at[0] for _, _, at in points],
                "y": [at[1] for _, _, at in points],
            }
        },
        table=table,
        legend=[(line.name, colour) for line, colour in zip(lines, colours, strict=True)],
    )


def _drawn(line: Line, *, log: bool) -> list[tuple[float, float]]:
    """Points that have a place on the axes."""
    least = LEAST if log else 0
    return [(x, y) for x, y in line.points if least <= x <= MOST and least <= y <= MOST]


def _powers_of_two(values: Sequence[float]) -> list[float]:
    """Where an axis that doubles has its marks; from end to end all values are between them."""
    exponents = [math.log2(value) for value in values] or [0.0]
    low = math.floor(min(exponents))
    high = max(math.ceil(max(exponents)), low + 1)
    step = math.ceil((high - low) / MAX_TICKS)
    return [2.0**exponent for exponent in range(low, high + step, step)]


def _table(caption: str, corner: str, lines: Sequence[Line]) -> Table:
    """A row for each x."""
    found: dict[float, dict[int, float]] = {}
    for n, line in enumerate(lines):
        for x, y in _drawn(line, log=False):
            found.setdefault(x, {})[n] = y
    every = range(len(lines))
    rows = [
        [number(x), *(significant(row[n]) if n in row else "" for n in every)]
        for x, row in sorted(found.items())
    ]
    head = [corner, *(line.name for line in lines)]
    return Table(caption, head, rows, frozenset(range(len(head))))

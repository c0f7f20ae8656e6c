"""Each output of a report, for tests that look at what it says."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.records.report import Report
from traceprobe.render import document_of, markdown, render, terminal
from traceprobe.render.document import Chart
from traceprobe.render.pages.report import brief


def html_of(report: Report) -> str:
    """Its page."""
    return render(report, "html")


def markdown_of(report: Report) -> str:
    """Its text for an issue comment."""
    return markdown.render(document_of(report))


def terminal_of(
    report: Report,
    width: int,
    color: bool,
    encoding: str = "utf-8",
    paths: Sequence[str] = (),
    *,
    verbose: bool = False,
) -> str:
    """Its summary in a terminal."""
    return terminal.render(brief(report, paths), width, color, encoding, verbose=verbose)


def points_of(chart: Chart) -> dict[str, list[tuple[float, float]]]:
    """Points of each curve, by its name."""
    found: dict[str, list[tuple[float, float]]] = {}
    drawn = chart.data["points"]
    for name, x, y in zip(drawn["name"], drawn["x"], drawn["y"], strict=True):
        found.setdefault(name, []).append((x, y))
    return found

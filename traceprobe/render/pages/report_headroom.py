"""How much of a step can go: one sentence for all outputs, a fold for the page."""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.formatting import significant
from traceprobe.records.headroom import Headroom
from traceprobe.records.report import Report
from traceprobe.render.colours import OTHER_COLOUR, SHARE_COLOURS
from traceprobe.render.document import Bar, Bars, Piece, Section, Table
from traceprobe.verdict.finding_order import ATTENTION
from traceprobe.verdict.headroom import OTHER_PRECISION

SAME_MS = 0.005
"""Relative difference of two times that are one to a reader."""
_HELP = (
    "What stays in any case is the longest of the floors in the table: what every program takes "
    "that computes the same, at this precision and batch, with the work shared among the GPUs as "
    "it is. What is within reach is predicted by replaying the steps with everything that the "
    "checks ask for, except another precision, at the cautious end of its interval. How floors are "
    "computed is in docs/roofline.md."
)


def amount(report: Report) -> str:
    """How much of the step can go: "14 to 31 of 73 ms"; empty where that is not known."""
    found = report.headroom
    if isinstance(found, UnsetType):
        return ""
    least, most = found.now_ms - found.reachable_ms, found.now_ms - found.floor_ms
    now = f"{significant(found.now_ms)} ms"
    if most <= SAME_MS * found.now_ms:
        return f"nothing of {now}"
    if most - least <= SAME_MS * found.now_ms:
        return f"{significant(most)} of {now}"
    if least <= SAME_MS * found.now_ms:
        return f"at most {significant(most)} of {now}"
    return f"{significant(least)} to {significant(most)} of {now}"


def sentences(report: Report) -> list[str]:
    """The same as a sentence; none where it is not known.

    What another precision would save is in neither bound: said where a finding asks for one.
    """
    said = amount(report)
    said = f"between {said.replace(' to ', ' and ')}" if " to " in said else said
    if said and any(f.id in OTHER_PRECISION and f.status in ATTENTION for f in report.findings):
        said = f"at this precision {said}"
    return [f"{said[:1].upper()}{said[1:]} a step can be saved."] if said else []


def sections(report: Report) -> list[Section]:
    """A fold with the bar and the floors; none where nothing is known."""
    found = report.headroom
    if isinstance(found, UnsetType):
        return []
    rows = [[floor.name, f"{significant(floor.ms)} ms", floor.why] for floor in found.floors]
    table = Table("No step is shorter", ["floor", "least", "because"], rows, frozenset({1}))
    (title,) = sentences(report)
    return [
        Section(
            "headroom",
            title.removesuffix("."),
            blocks=[_bars(found), table],
            help=_HELP,
            folded=True,
        )
    ]


def _bars(found: Headroom) -> Bars:
    parts = (
        ("stays in any case", OTHER_COLOUR, found.floor_ms),
        ("may go", SHARE_COLOURS["overhead"], found.reachable_ms - found.floor_ms),
        ("is within reach", SHARE_COLOURS["compute"], found.now_ms - found.reachable_ms),
    )
    pieces = [
        Piece(word, colour, ms, f"{significant(ms)} ms") for word, colour, ms in parts if ms > 0
    ]
    return Bars("What could be saved of a step", "ms a step", [Bar("", pieces)], relative=True)

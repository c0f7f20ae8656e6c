"""The page of a document: result, sections with bars, curves and tables, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from traceprobe.render.bars import Segment
from traceprobe.render.blocks import Plot, legend, plot, stacked, table_of
from traceprobe.render.document import Bar, Bars, Block, Curves, Document, Section, Table
from traceprobe.render.markdown import render as markdown
from traceprobe.render.page import file, fill

LONG = 28
"""Characters from which a cell may be broken into lines."""


@dataclass(frozen=True)
class Sheet:
    """A table and how its columns are set: `r` number, `k` short text, `t` long text."""

    table: Table
    align: Sequence[str]


@dataclass(frozen=True)
class View:
    """A block as the page shows it: its table, and what there is to draw."""

    block: Block
    sheet: Sheet
    bars: Sequence[tuple[Bar, Sequence[Segment]]] = ()
    legend: Sequence[tuple[str, str]] = ()
    plot: Plot | None = None


@dataclass(frozen=True)
class Part:
    """A section with its blocks."""

    section: Section
    views: Sequence[View]


def render(document: Document) -> str:
    """The page of `document`. Equal documents give equal pages, byte for byte."""
    parts = parts_of(document.sections)
    return fill(
        "document.html.j2",
        version=document.version,
        inputs=document.inputs,
        embedded={
            document.kind: msgspec.json.format(document.json.encode(), indent=-1),
            "markdown": msgspec.json.encode(markdown(document)),
        },
        scripts=[file("page.js")],
        document=document,
        parts=parts,
    )


def parts_of(sections: Sequence[Section]) -> list[Part]:
    """The sections as `blocks.html.j2` shows them."""
    return [Part(s, [_view(block) for block in s.blocks]) for s in sections]


def _view(block: Block) -> View:
    sheet = _sheet(table_of(block))
    if isinstance(block, Bars):
        return View(block, sheet, bars=stacked(block), legend=legend(block))
    if isinstance(block, Curves):
        return View(block, sheet, plot=plot(block))
    return View(block, sheet)


def _sheet(table: Table) -> Sheet:
    longest = [max((len(row[n]) for row in table.rows), default=0) for n in range(len(table.head))]
    align = [
        "r" if n in table.numeric else "k" if length < LONG else "t"
        for n, length in enumerate(longest)
    ]
    return Sheet(table, align)

"""A result that is told in sections: headline, findings, tables, bars, charts.

Each kind of record has a page in `render/pages/`, whose `document(record)` makes a `Document` of
it. `html`, `markdown` and `terminal` render any document; what they render is the blocks below.

All texts may hold names from traces. The renderers, not the documents, make them harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from traceprobe.records.report import Finding

Tone = Literal["good", "bad", "unclear", "plain"]
"""How a headline or a row is to be seen; colour never stands without the word."""
Output = Literal["markdown", "terminal", "verbose"]
"""The outputs that are short; `verbose` is all that a terminal shows when asked."""
Columns = Mapping[str, Sequence[Any]]
"""Rows of a dataset as parallel columns."""

CONTENTS = (
    "Names of kernels as the traces recorded them, base names of the files, names of the devices, "
    "settings of the programs, times and sizes. No folders, host names, user names, environment or "
    "source code. Nothing is loaded from or sent to a network. Where that is too much, make it "
    "from reports that were written with `--redact`."
)
"""What a page contains, where the page of a record does not say otherwise."""


class Table(msgspec.Struct, frozen=True):
    """Rows of text. The first column names the row; `numeric` are those to align right.

    Args:
        caption: what the table shows, for those who cannot see the page.
        tones: one for each row, or none.
        most: rows that Markdown and terminal show; the page shows all.
        names: columns of names from a trace, set like code.
        full: what the first of `names` is short for, one a row, or none; shown on demand.
        show: where in the timeline a row is, one a row, or none: `RANKINDEX:START-END`, ns after
            the time zero of the rank's input. Empty for rows that are nowhere.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    tones: Sequence[Tone] = ()
    most: int = 12
    names: frozenset[int] = frozenset()
    full: Sequence[str] = ()
    show: Sequence[str] = ()


class Piece(msgspec.Struct, frozen=True):
    """A part of a bar: a class of the partition or any other word, with its colour.

    Args:
        note: what stands beside the part's percentage in the legend, where a bar has its own.
    """

    word: str
    colour: str
    value: float
    note: str = ""


class Bar(msgspec.Struct, frozen=True):
    """A row of a bar picture: its pieces add up to its length. `text` stands at its end."""

    label: str
    pieces: Sequence[Piece]
    text: str = ""


class Bars(msgspec.Struct, frozen=True):
    """Stacked bars on one scale, from 0; `unit` is that of the pieces' values.

    Args:
        relative: every bar fills 100 %, whatever its sum; pieces are told in percent, also those
            of nothing. One such bar alone has its numbers in the legend.
        terse: the legend of the only bar is one line, without notes and pieces of nothing.
    """

    caption: str
    unit: str
    bars: Sequence[Bar]
    relative: bool = False
    terse: bool = False


class Chart(msgspec.Struct, frozen=True):
    """A statistical chart in Vega-Lite, and the table that holds its numbers.

    Args:
        id: of the element that it is drawn in, `chart-…`.
        summary: what it shows, in words that everybody sees.
        spec: a specification without data; `data` has the columns of each dataset that it names.
        legend: word and colour of each series.
        description: more words for those who cannot see it; `summary` where there are none.
    """

    id: str
    caption: str
    summary: str
    spec: Mapping[str, Any]
    data: Mapping[str, Columns]
    table: Table
    legend: Sequence[tuple[str, str]] = ()
    description: str = ""


class Timeline(msgspec.Struct, frozen=True):
    """Whole iterations of several ranks, which the page's script draws from the embedded report.

    Args:
        summary: what it shows, in words that everybody sees.
        ranks: indices in `Report.ranks` of those that are drawn, from top to bottom.
        legend: word and colour of the labels that occur.
        labels: word, colour and meaning of every label there may be, in the order in which they
            are stacked; `other` is for unknown ones.
        table: the longest segments, for those who cannot see the picture.
    """

    caption: str
    summary: str
    ranks: Sequence[int]
    legend: Sequence[tuple[str, str]]
    labels: Mapping[str, tuple[str, str, str]]
    table: Table


class Owners(msgspec.Struct, frozen=True):
    """The trees of owners of several ranks, which the page's script draws from the embedded report.

    Args:
        ranks: indices in `Report.ranks` of those that have one.
        labels: as those of a `Timeline`.
    """

    caption: str
    ranks: Sequence[int]
    labels: Mapping[str, tuple[str, str, str]]


class Findings(msgspec.Struct, frozen=True):
    """Findings of a report as cards; what asks for attention comes first.

    Args:
        first: ids of those that are written out, in this order; the others are folded.
        step_ms: what savings are parts of; None where there are no steps.
        together: what the first of them save together, in a sentence.
    """

    findings: Sequence[Finding]
    first: Sequence[str] = ()
    step_ms: float | None = None
    together: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Names and their values, a line each.

    Args:
        spare: whether a short summary in a terminal goes without them where they have no room.
    """

    facts: Sequence[tuple[str, str]]
    spare: bool = False


class Text(msgspec.Struct, frozen=True):
    """Sentences, one an item; `lead` stands before each, in the colour of `tone`."""

    sentences: Sequence[str]
    lead: str = ""
    tone: Tone = "plain"


class Code(msgspec.Struct, frozen=True):
    """Text that keeps its lines and its spaces; `spare` as of `Facts`."""

    text: str
    spare: bool = False

    @property
    def lines(self) -> list[str]:
        """Its lines without what has no glyph, which could steer a terminal."""
        lines = self.text.split("\n")
        return ["".join(c for c in line if c.isprintable()) for line in lines]


class Section(msgspec.Struct, frozen=True):
    """A part of the page, or a part of a part. `id` is stable: links lead to it.

    Args:
        text: sentences, one an item.
        help: how to read it, for beginners; folded.
        folded: whether the section itself is a fold, which starts closed unless `is_open`. Its
            title should then say what is inside.
        brief: whether Markdown and terminal show it too.
        nav: its name in the list of sections; made of `id` where it has none.
        beside: whether its tables may stand beside each other.
    """

    id: str
    title: str
    text: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    help: str = ""
    folded: bool = False
    is_open: bool = False
    brief: bool = True
    nav: str = ""
    beside: bool = False


Block = Table | Bars | Chart | Timeline | Owners | Findings | Facts | Text | Code | Section


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole result.

    Args:
        kind: what the record is, e.g. `comparison`.
        title: a few words, e.g. "12.3 % faster". tone: how to see it, or what bounds a run.
        headline: the result in a sentence or two.
        points: what explains it, most important first.
        cautions: what to know before believing it.
        inputs: base names of what it was made from. digests: SHA-256 of each, where known.
        json: the record itself, as `to_json` gives it; embedded in the page.
        secondary: what comes after the title in a weaker voice. aside: beside it in a terminal.
        anchor: id of the part with the result.
        doubt: how sure the result is, in words. result: what follows the headline there.
        summary: paragraphs that a short output shows instead of points, cautions and sections.
        provenance: what is to be said of the inputs beyond their names.
        contents: which data of the traces the page contains.
    """

    kind: str
    title: str
    headline: str
    version: str
    json: str
    tone: str = "plain"
    points: Sequence[str] = ()
    cautions: Sequence[str] = ()
    sections: Sequence[Section] = ()
    inputs: Sequence[str] = ()
    digests: Sequence[str] = ()
    secondary: str = ""
    aside: str = ""
    anchor: str = "result"
    doubt: str = ""
    result: Sequence[Block] = ()
    summary: Mapping[Output, Sequence[Sequence[Block]]] = msgspec.field(default_factory=dict)
    provenance: Sequence[Block] = ()
    contents: str = CONTENTS

"""A result that is told in sections: headline, numbers, bars, curves. All outputs render it.

Comparisons, ladders, fleets and scaling curves differ in what they say, not in how it is shown.
Each turns its record into a `Document`; `document_html`, `document_markdown` and
`document_terminal` turn that into the page, the text for an issue and the summary in the terminal.

All texts may hold names from traces. The renderers, not the documents, make them harmless.

A record gets its outputs by deriving from `Record` and by a line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

import msgspec

from traceprobe.report.cleaning import Clean

KINDS: Mapping[str, str] = {
    "comparison": "Comparison",
    "ladder": "Ladder",
    "scaling": "Scaling",
    "fleet": "Fleet",
    "whatif": "WhatIf",
    "roofline": "RooflineRecord",
    "peaks": "MeasuredPeaks",
}
"""Kinds of records and their classes.

A kind is also the name of the module beside this one that holds the class and its SCHEMA_VERSION;
`KIND_page` has the function `document` that takes the record.
"""

Tone = Literal["good", "bad", "unclear", "plain"]
"""How a headline or a row is to be seen; colour never stands without the word."""


@dataclass(frozen=True)
class Table:
    """Rows of text. The first column names the row; `numeric` are those to align right.

    Args:
        caption: what the table shows, for those who cannot see the page.
        tones: one for each row, or none.
        most: rows that Markdown and terminal show; the page shows all.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    tones: Sequence[Tone] = ()
    most: int = 12


@dataclass(frozen=True)
class Piece:
    """A part of a bar: a class of the partition or any other word, with its colour."""

    word: str
    colour: str
    value: float


@dataclass(frozen=True)
class Bar:
    """A row of a bar picture: its pieces add up to its length. `text` stands at its end."""

    label: str
    pieces: Sequence[Piece]
    text: str


@dataclass(frozen=True)
class Bars:
    """Stacked bars on one scale, from 0; `unit` is that of the pieces' values."""

    caption: str
    unit: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Line:
    """A curve: points (x, y), drawn dashed where it is a model or an ideal, not a measurement."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Curves:
    """Curves over one pair of axes; both begin at 0 unless `log` says that they double."""

    caption: str
    x: str
    y: str
    lines: Sequence[Line]
    log: bool = False


Block = Table | Bars | Curves


@dataclass(frozen=True)
class Section:
    """A part of the page. `id` is stable: links lead to it.

    Args:
        text: sentences, one an item.
        help: how to read it, for beginners; folded.
        folded: whether the section itself starts closed.
        brief: whether Markdown and terminal show it too.
    """

    id: str
    title: str
    text: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    help: str = ""
    folded: bool = False
    brief: bool = True


@dataclass(frozen=True)
class Document:
    """A whole result.

    Args:
        kind: what the record is, e.g. `comparison`.
        title: a few words, e.g. "12.3 % faster". tone: how to see it.
        headline: the result in a sentence or two.
        points: what explains it, most important first.
        cautions: what to know before believing it.
        inputs: base names of what it was made from.
        json: the record itself, as `to_json` gives it; embedded in the page.
    """

    kind: str
    title: str
    tone: Tone
    headline: str
    points: Sequence[str]
    cautions: Sequence[str]
    sections: Sequence[Section]
    inputs: Sequence[str]
    version: str
    json: str = field(repr=False)


class Record(Clean, frozen=True, kw_only=True):
    """A result that is told as a document; what derives from it says what it is in `kind`."""

    kind: str
    schema_version: str
    traceprobe_version: str

    def to_document(self) -> Document:
        """The sections that all outputs but JSON show."""
        document: Document = import_module(f"{__package__}.{self.kind}_page").document(self)
        return document

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        return json_of(self)

    def to_html(self) -> str:
        """One self-contained HTML page: no network, readable without scripts."""
        from traceprobe.report.document_html import render

        return render(self.to_document())

    def to_markdown(self) -> str:
        """A summary that fits an issue comment."""
        from traceprobe.report.document_markdown import render

        return render(self.to_document())


def json_of(record: msgspec.Struct) -> str:
    """A record as indented JSON with sorted keys, ending in a newline."""
    compact = msgspec.json.encode(record, order="sorted")
    return msgspec.json.format(compact, indent=1).decode() + "\n"


def kind_of(text: str | bytes) -> str | None:
    """The kind that a result in JSON says it is of; None where it says none, as reports do.

    Raises:
        msgspec.MsgspecError: it is no JSON object.
    """
    return msgspec.json.decode(text, type=_Head).kind


def read(text: str | bytes) -> Record:
    """Read back what a record's `to_json` wrote.

    Raises:
        msgspec.MsgspecError: it is no JSON, of an unknown kind, of a schema version that is not
            read, or breaks its schema; the message says which.
        DamagedRecord: it contradicts itself.
    """
    from traceprobe.report.soundness import sound

    head = msgspec.json.decode(text, type=_Head)
    if head.kind is None or head.kind not in KINDS:
        raise msgspec.ValidationError(f"its kind is {head.kind!r}, known are {', '.join(KINDS)}")
    module = import_module(f"{__package__}.{head.kind}")
    if head.schema_version.split(".")[0] != module.SCHEMA_VERSION.split(".")[0]:
        raise msgspec.ValidationError(
            f"a {head.kind} of schema version {head.schema_version}, this traceprobe reads "
            f"{module.SCHEMA_VERSION}; make it again"
        )
    record: Record = msgspec.json.decode(text, type=getattr(module, KINDS[head.kind]))
    return sound(record)


class _Head(msgspec.Struct):
    kind: str | None = None
    schema_version: str = ""

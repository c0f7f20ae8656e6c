"""A result that is told in sections: headline, numbers, bars, curves. All outputs render it.

Comparisons, ladders, GPUs and scaling curves differ in what they say, not in how it is shown.
Each turns its record into a `Document`; `document_html`, `document_markdown` and
`document_terminal` turn that into the page, the text for an issue and the summary in the terminal.

All texts may hold names from traces. The renderers, not the documents, make them harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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

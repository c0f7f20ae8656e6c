"""From a saved result to what people read: a page, Markdown, a summary in a terminal.

A kind of record has its page in `render/pages/`, a module with the function `document`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

import msgspec

from traceprobe.records.base import Record, Rendered, compact_json

if TYPE_CHECKING:
    from traceprobe.render.document import Document

Output = Literal["html", "markdown"]


def document_of(record: Rendered) -> Document:
    """The sections that all outputs but JSON show."""
    kind = record.kind if isinstance(record, Record) else "report"
    document: Document = import_module(f"traceprobe.render.pages.{kind}").document(record)
    return document


def render(record: Rendered, output: Output) -> str:
    """One self-contained HTML page, readable without scripts, or Markdown that fits a comment."""
    if output == "markdown":
        from traceprobe.render import markdown

        return markdown.render(document_of(record))
    from traceprobe.render import html  # the other outputs need no templates

    # A record made in Python may hold an int where the schema says float, or keys in another order;
    # one trip through JSON makes it what a reader of the file would have.
    record = msgspec.json.decode(compact_json(record), type=type(record))
    return html.render(document_of(record))

"""Text that GitHub Flavored Markdown shows as it is, wherever it stands.

Strings come from traces, so from anybody. Three readers would find something in them: the parser of
Markdown, for which punctuation is escaped; HTML, for which `<`, `>` and `&` are entities; and what
GitHub does to the text afterwards (links, mentions, references, emoji, mathematics), which sees no
escapes and is broken up by a zero-width space.
"""

from __future__ import annotations

import re
from functools import lru_cache

from traceprobe.formatting import code_spans, shorten

MAX_PROSE = 240
"""Characters before escaping, which makes at most five of one: sixty such lines would still fit."""

_MARKUP = re.compile(
    r"[\\`*\[\]#|~]"
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # inside a word an underscore is literal anyway
    r"|^[-+=]"  # lists and underlined headings
)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_LINKED = re.compile(
    r"@|#"
    r"|:(?=//|[A-Za-z0-9_+-]+:)"  # an address, an emoji by its name
    r"|(?i:w(?=ww\.)|(?<![a-z0-9])g(?=h-\d|hsa-))"  # www., GH-1, GHSA-
)
_BREAK = "\u200b"
_DOLLAR = "\uff04"
"""Its wide form: GitHub reads `$` as mathematics in any text, escaped or not."""


@lru_cache(maxsize=8192)  # a document is laid out more than once until it fits
def literal(text: str, limit: int = MAX_PROSE) -> str:
    """A name: nothing in it means anything, wherever Markdown allows text."""
    return _escaped(shorten(text, limit))


@lru_cache(maxsize=8192)
def prose(text: str, limit: int = MAX_PROSE) -> str:
    """A sentence: the same, but pairs of backticks stay code.

    What holds a pipe does not, for that ends the cell of a table even inside of code.
    """
    return "".join(
        f"`{part}`" if is_code and "|" not in part else _escaped(f"`{part}`" if is_code else part)
        for part, is_code in code_spans(shorten(text, limit))
    )


def in_html(text: str, limit: int = MAX_PROSE) -> str:
    """A name inside HTML, where Markdown's backslashes would be visible."""
    return _inert(shorten(text, limit))


def _escaped(text: str) -> str:
    return _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", _inert(text)))


def _inert(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(rf"\g<0>{_BREAK}", plain).replace("$", _DOLLAR)

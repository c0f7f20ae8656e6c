"""What GitHub makes of Markdown: the tree of its renderer, and what it does to the text after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from cmarkgfm import cmark

EXTENSIONS = ("table", "autolink", "strikethrough", "tasklist")
OPTIONS = cmark.Options.CMARK_OPT_UNSAFE | cmark.Options.CMARK_OPT_FOOTNOTES
"""HTML is kept, so that whatever comes through is in the tree."""
LIVE = {
    "mention": re.compile(r"@[A-Za-z0-9]"),
    "reference": re.compile(r"#\d|(?i:\bgh-\d)|(?i:\bghsa-\w)"),
    "address": re.compile(r"://|(?i:www\.)"),
    "emoji": re.compile(r":[A-Za-z0-9_+-]+:"),
    "mathematics": re.compile(r"\$"),
}
"""What GitHub looks for in the text outside of code, whatever was escaped in the source."""
VOID = {"br", "hr", "img", "input"}


class Tree(HTMLParser):
    """The tags of a page in order, and its text outside of code.

    Args:
        markdown: as written to a file.
    """

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text: list[str] = []
        self.code: list[str] = []
        self._inside: list[str] = []
        self.feed(cmark.markdown_to_html_with_extensions(markdown, OPTIONS, EXTENSIONS))
        self.close()
        assert self._inside == []

    def handle_starttag(self, tag, attrs):
        # Alignment is ours; anything else that hangs on a tag shows in the skeleton.
        self.tags.append(tag + "".join(f" {name}" for name, _ in attrs if name != "align"))
        if tag not in VOID:
            self._inside.append(tag)

    def handle_endtag(self, tag):
        assert self._inside.pop() == tag
        self.tags.append(f"/{tag}")

    def handle_comment(self, data):
        self.tags.append("!--")

    def handle_data(self, data):
        (self.code if {"code", "pre"} & {*self._inside} else self.text).append(data)

    def skeleton(self) -> list[str]:
        """The tags without the spans of code, which sentences may hold."""
        return [tag for tag in self.tags if tag not in ("code", "/code")]

    def live(self) -> Iterator[str]:
        """What GitHub would turn into something else."""
        for name, pattern in LIVE.items():
            for piece in self.text:
                if found := pattern.search(piece):
                    yield f"{name} {piece[max(found.start() - 20, 0) : found.end() + 20]!r}"

"""An HTML page taken apart."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser


class ParsedPage(HTMLParser):
    """The parts of a page that the tests ask about."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.attributes: set[str] = set()
        self.json: dict[str, str] = {}
        self.order: list[str] = []
        self._open: list[str] = []
        self._script: str | None = None
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags[tag] += 1
        self.attributes.update(values)
        if identifier := values.get("id"):
            self.ids.append(identifier)
        self.addresses += [values[a] or "" for a in ("src", "href") if a in values]
        if tag not in self.VOID:
            self._open.append(tag)
        if values.get("type") == "application/json":
            self._script = values["id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.json[self._script] = data

"""What all saved results have in common: versions, JSON that is checked when read, and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

import msgspec

from traceprobe.errors import DamagedRecord, OtherVersion
from traceprobe.records.cleaning import Clean
from traceprobe.records.numbers import too_large
from traceprobe.records.texts import Word

if TYPE_CHECKING:
    import altair as alt
    import polars as pl
    from typing_extensions import Self

FRAMES = "traceprobe.records.frames"
"""Module of the tables of all records, found the same way: they know what they are tables of."""
RENDERER = "traceprobe.render"
"""Module that makes the outputs, found by its name when one is asked for: records know no pages."""
_COLUMN = re.compile(r"\[\n\s+-?\d[-\d,\s]*\]")
"""An array of integers in indented JSON. No string holds a line feed."""


class Saved(Clean, frozen=True, kw_only=True):
    """A result that is saved as JSON."""

    SCHEMA_VERSION: ClassVar[str] = "1.0"
    """`MAJOR.MINOR` of the contract of its JSON; another major version is not read."""

    schema_version: Word
    traceprobe_version: Word

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in, as sentences; types are checked as JSON is decoded."""
        yield from ()

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        return json_of(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read back what `to_json` wrote.

        Raises:
            msgspec.DecodeError: `text` is not JSON.
            msgspec.ValidationError: it is something else; the message holds the offending path.
            OtherVersion: its schema has another major version.
            DamagedRecord: it contradicts itself.
        """
        version = msgspec.json.decode(text, type=_Head).schema_version
        if version is not None and _major(version) != _major(cls.SCHEMA_VERSION):
            raise OtherVersion(
                f"has schema version {version}, this traceprobe reads {cls.SCHEMA_VERSION}"
            )
        record = msgspec.json.decode(text, type=cls)
        problems = ["a number is too large"] if too_large(record) else [*record.problems()]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise DamagedRecord(f"contradicts itself: {problems[0]}{more}")
        return record


class Rendered(Saved, frozen=True, kw_only=True):
    """A result that people read."""

    def to_html(self) -> str:
        """One self-contained HTML page: no network, readable without scripts."""
        page: str = resolve_name(f"{RENDERER}:render")(self, "html")
        return page

    def _repr_html_(self) -> str:
        text: str = resolve_name(f"{RENDERER}.notebook:html")(self)
        return text

    def to_markdown(self) -> str:
        """A summary that fits an issue comment."""
        text: str = resolve_name(f"{RENDERER}:render")(self, "markdown")
        return text

    def chart(self, name: str, rank: int | None = None) -> alt.Chart:
        """An altair chart of the page with its data; `docs/library.md` has the names.

        Args:
            rank: of which it is to be, for charts of single ranks; the first that has one.

        Raises:
            UsageError: the result has no such chart; the message names those it has.
        """
        found: alt.Chart = resolve_name(f"{RENDERER}.notebook:chart")(self, name, rank)
        return found

    def frame(self, name: str) -> pl.DataFrame:
        """A table of the result, as a polars frame; `docs/library.md` has the names and columns.

        Raises:
            UsageError: results of this kind have no such table; the message names those they have.
        """
        found: pl.DataFrame = resolve_name(f"{FRAMES}:frame")(self, name)
        return found


class Record(Rendered, frozen=True, kw_only=True):
    """A result that says what it is in `kind`, as all but reports do."""

    kind: Word

    def __repr__(self) -> str:
        """Its headline, where it has one: a line in a list or at a prompt."""
        return f"<{type(self).__name__}: {getattr(self, 'headline', self.kind)}>"


def json_of(record: msgspec.Struct) -> str:
    """A record as indented JSON with sorted keys, ending in a newline; a column is one line."""
    indented = msgspec.json.format(compact_json(record), indent=1).decode() + "\n"
    return _COLUMN.sub(_in_one_line, indented)


def _in_one_line(column: re.Match[str]) -> str:
    return column[0].replace("\n", "").replace(" ", "").replace(",", ", ")


def compact_json(record: msgspec.Struct) -> bytes:
    """A record as JSON with sorted keys, as embedded in its page."""
    return msgspec.json.encode(record, order="sorted")


def _major(version: str) -> str:
    return version.split(".")[0]


class _Head(msgspec.Struct):
    schema_version: str | None = None

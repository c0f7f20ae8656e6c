"""What all saved results have in common: a kind, a schema version, JSON, and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import msgspec

from traceprobe.records.cleaning import Clean

KINDS: Mapping[str, str] = {
    "comparison": "Comparison",
    "ladder": "Ladder",
    "scaling": "Scaling",
    "gpus": "GpuComparison",
    "whatif": "WhatIf",
    "roofline": "RooflineRecord",
    "peaks": "MeasuredPeaks",
}
"""Kinds of records and their classes.

A kind is also the name of the module beside this one that holds the class and its SCHEMA_VERSION;
its page has that name too.
"""


class Record(Clean, frozen=True, kw_only=True):
    """A result that is told as a document; what derives from it says what it is in `kind`."""

    kind: str
    schema_version: str
    traceprobe_version: str

    def to_json(self) -> str:
        """Indented JSON with sorted keys, ending in a newline."""
        return json_of(self)

    def to_html(self) -> str:
        """One self-contained HTML page: no network, readable without scripts."""
        return rendered(self, "html")

    def to_markdown(self) -> str:
        """A summary that fits an issue comment."""
        return rendered(self, "markdown")


def rendered(record: msgspec.Struct, output: str) -> str:
    """What `traceprobe.render.render` makes of a record; found when asked for, as it is above."""
    text: str = import_module("traceprobe.render").render(record, output)
    return text


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
    from traceprobe.records.soundness import sound

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

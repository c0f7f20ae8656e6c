"""Slices of Kineto traces: what is not on a list of what may be passed on is left out.

Every event is written anew from what is on the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.kineto.chunks import BOUNDARY, BlockReader, EventSplitter
from traceprobe.ingest.kineto.columns import GPU, base_ns, floats, nanoseconds
from traceprobe.ingest.untrusted_values import json_object
from traceprobe.model.events import UNKNOWN
from traceprobe.slicing.kineto_fields import METADATA_EVENTS, public_event, public_metadata

if TYPE_CHECKING:
    from traceprobe.slicing.window import SlicePlan, Window

_FLOW = ("s", "f", "t")


class _Row(msgspec.Struct, gc=False):
    """The few fields that decide whether an event is kept."""

    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: int | float | str | None = None
    id: int | float | str | None = None
    args: dict[str, Any] | None = None


_DECODE = msgspec.json.Decoder(_Row).decode


def write_kineto_slice(source: Path, target: Path, plan: SlicePlan) -> None:
    """Write the slice, one event a line. Damaged events are left out."""
    window = next(iter(plan.windows.values()))
    facts = read_metadata(source)
    base = base_ns(facts)
    calls = plan.trace.host_calls
    kept_calls = calls.filter((pl.col("t0") >= window.low) & (pl.col("t0") < window.high))
    linked = set(kept_calls["correlation"].to_list()) - {UNKNOWN}
    known = set(calls["correlation"].to_list()) - {UNKNOWN}
    chosen = _Chooser(window, base, linked, known)
    arrows = {(row.cat, str(row.id)) for row, _ in _events(source) if row.ph == "s" and chosen(row)}
    with target.open("w", encoding="utf-8", newline="\n") as file:
        file.write(_head(facts, plan))
        separator = "\n"
        for row, text in _events(source):
            keep = (row.cat, str(row.id)) in arrows if row.ph in _FLOW else chosen(row)
            event = _whole(text) if keep else None
            if event is not None:
                file.write(separator + json.dumps(event))
                separator = ",\n"
        file.write("\n]}\n")


class _Chooser:
    """Whether an event belongs to the slice."""

    def __init__(self, window: Window, base: int, linked: set[int], known: set[int]) -> None:
        self._window, self._base, self._linked, self._known = window, base, linked, known

    def __call__(self, row: _Row) -> bool:
        if row.ph == "M":
            return row.name in METADATA_EVENTS
        time = floats([row], attrgetter("ts"))
        if time[0] != time[0]:  # not a number
            return False
        at = int(nanoseconds(time)[0]) + self._base
        window = self._window
        if row.cat in GPU or row.cat == "gpu_user_annotation":
            correlation = (row.args or {}).get("correlation")
            number = isinstance(correlation, (int, float))
            if row.cat in GPU and number and correlation in self._known:
                return correlation in self._linked
            return window.gpu_low <= at < window.gpu_high
        return window.low <= at < window.high


def _whole(text: bytes) -> dict[str, Any] | None:
    """What is passed on of an event; None where the rest of it is damaged."""
    try:
        return public_event(msgspec.json.decode(text.decode("utf-8", "replace")))
    except (msgspec.MsgspecError, RecursionError):
        return None


def _events(source: Path) -> Iterator[tuple[_Row, bytes]]:
    for piece in event_texts(source):
        try:
            yield _DECODE(piece), piece
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def event_texts(source: Path) -> Iterator[bytes]:
    """The text of each event, damaged ones too."""
    found = detect_format(source)
    reader = BlockReader(source, found.gzipped, lambda done, total: None)
    for chunk in EventSplitter().chunks(reader.blocks()):
        start = 0
        for match in [*BOUNDARY.finditer(chunk), None]:
            yield chunk[start : match.start() + 1 if match else len(chunk)].strip(b", \t\r\n")
            start = match.end() if match else len(chunk)


def read_metadata(source: Path) -> dict[str, Any]:
    """The metadata of a trace."""
    reader = BlockReader(source, detect_format(source).gzipped, lambda done, total: None)
    split = EventSplitter()
    for _ in split.chunks(reader.blocks()):
        pass
    head = split.head.strip().rstrip(b", \t\r\n") + b"}"
    tail = b"{" + split.tail.strip().removeprefix(b",")
    return {**(json_object(head) or {}), **(json_object(tail) or {})}


def _head(facts: dict[str, Any], plan: SlicePlan) -> str:
    metadata = public_metadata(facts)
    metadata["traceName"] = plan.trace.origin.name
    metadata["traceprobe_slice"] = plan.note
    return json.dumps(metadata, sort_keys=True)[:-1] + ', "traceEvents": ['

"""What a JSON file is that has no event of a trace."""

from __future__ import annotations

from pathlib import Path

import msgspec

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest import foreign_traces
from traceprobe.ingest.gunzip import unpacked_head
from traceprobe.ingest.untrusted_values import JSON_ERRORS

MOST = 64 << 20
"""Bytes that are looked at: what others save may be long, what ours do is not."""
_ACTIONS = (b"1", b"2", b"3", b"4")
"""`torch.profiler._memory_profiler.Action`: there before, created, written to, destroyed."""
_LIST = msgspec.json.Decoder(list[list[msgspec.Raw]])
_VALUES = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def without_events(path: Path, *, gzipped: bool, lost: int) -> DamagedInput | UnsupportedInput:
    """The error of a file without a single event: what it is, and what to do with it.

    Args:
        lost: events that are there and cannot be read.
    """
    text = _text(path, gzipped=gzipped)
    try:
        known = _of_list(text) if text.lstrip()[:1] == b"[" else _of_object(text, path, gzipped)
    except JSON_ERRORS:
        known = None
    if known is not None:
        return UnsupportedInput(f"{path.name}: is {known}")
    if lost and not _is_list_of_values(text):
        return DamagedInput(
            f"{path.name}: none of its {lost} events can be read; capture or copy the trace again"
        )
    if text.count(b'"traceEvents"'):
        return DamagedInput(
            f"{path.name}: a trace without any event (`traceEvents` is empty): nothing ran while "
            "the profiler was on; record it again around some whole steps"
        )
    return DamagedInput(
        f"{path.name}: JSON without trace events; a PyTorch trace has a `traceEvents` list "
        "(`prof.export_chrome_trace`)"
    )


def _of_list(text: bytes) -> str | None:
    rows = _LIST.decode(text)
    if len(rows) in (2, 3) or (rows and all(map(_is_allocation, rows))):
        return foreign_traces.MEMORY_TIMELINE
    return None


def _is_list_of_values(text: bytes) -> bool:
    """Whether this is a list without any object, as an event is one."""
    try:
        return all(bytes(value)[:1] != b"{" for value in _VALUES.decode(text))
    except JSON_ERRORS:
        return False


def _is_allocation(row: list[msgspec.Raw]) -> bool:
    """Whether this is a row of a raw memory timeline: time, action, bytes, category."""
    return len(row) == 4 and bytes(row[1]) in _ACTIONS


def _of_object(text: bytes, path: Path, gzipped: bool) -> str | None:
    keys = _OBJECT.decode(text).keys()
    known = foreign_traces.without_events(keys, str(path.with_suffix("") if gzipped else path))
    return f"{known} after unpacking it" if known and gzipped else known


def _text(path: Path, *, gzipped: bool) -> bytes:
    if gzipped:
        return unpacked_head(path, MOST)[0]
    with path.open("rb") as file:
        return file.read(MOST).removeprefix(b"\xef\xbb\xbf")

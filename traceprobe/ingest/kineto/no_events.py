"""What a JSON file is that has no events of a trace."""

from __future__ import annotations

from pathlib import Path

import msgspec

from traceprobe.ingest import foreign_traces
from traceprobe.ingest.gunzip import Gunzip
from traceprobe.ingest.untrusted_values import JSON_ERRORS

MOST = 64 << 20
"""Bytes that are looked at: what others save may be long, what ours do is not."""
_LIST = msgspec.json.Decoder(list[list[msgspec.Raw]])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def known_without_events(path: Path, *, gzipped: bool) -> str | None:
    """What it is and what to do with it; None where nobody can tell."""
    text = _text(path, gzipped=gzipped)
    try:
        if text.lstrip()[:1] != b"[":
            found = _OBJECT.decode(text)
            if "".join(bytes(found.get("traceEvents", b"[]")).decode().split()) != "[]":
                return None  # events that nobody can read
            known = foreign_traces.without_events(found, path.stem if gzipped else path.name)
            return f"{known} after unpacking it" if known and gzipped else known
        return foreign_traces.MEMORY_TIMELINE if len(_LIST.decode(text)) in (2, 3) else None
    except JSON_ERRORS:
        return None


def _text(path: Path, *, gzipped: bool) -> bytes:
    with path.open("rb") as file:
        content = file.read(MOST)
    if not gzipped:
        return content.removeprefix(b"\xef\xbb\xbf")
    text = b""
    for piece in Gunzip().pieces([content]):
        text += piece
        if len(text) > MOST:
            break
    return text

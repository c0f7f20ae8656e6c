"""Reads damaged JSON event by event: what can be mended is mended, the rest is counted as lost.

Only chunks that the typed decoder rejects come here, so the cost of a damaged file is the cost of
its damaged chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

import msgspec

from traceprobe.ingest.kineto.chunks import BOUNDARY
from traceprobe.ingest.kineto.duplicate_keys import has_duplicate_key
from traceprobe.ingest.untrusted_values import JSON_ERRORS

Event = TypeVar("Event")

_BARE = re.compile(rb"(?<=[:\[,])(\s*)-?(?:inf(?:inity)?|nan|N/A)(?=\s*[,}\]])", re.IGNORECASE)
_TRAILING_COMMA = re.compile(rb",(\s*[}\]])")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NAME = re.compile(rb'"name"\s*:\s*"')
_AFTER_NAME = re.compile(rb'"\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s)"\s*:')
_UNESCAPED_QUOTE = re.compile(rb'(?<!\\)"')
_ARRAY_CLOSED = re.compile(rb"\}\s*\]")


class Salvage(msgspec.Struct, Generic[Event]):
    """The events of a damaged chunk, how many were mended, how many are gone.

    Args:
        twice: events that name a key twice.
    """

    events: list[Event] = msgspec.field(default_factory=list)
    repaired: int = 0
    lost: int = 0
    twice: int = 0


def salvage(chunk: bytes, decode: Callable[[bytes], Event]) -> Salvage[Event]:
    """The events of a damaged chunk, decoded one at a time.

    Args:
        chunk: events without the array's brackets; may end in the middle of one, or run on past
            the array's end into the rest of the file.
        decode: one event's bytes to the event; raises `msgspec.MsgspecError` if it cannot.
    """
    result: Salvage[Event] = Salvage()
    for piece in _pieces(chunk):
        try:
            result.events.append(decode(piece))
            result.twice += has_duplicate_key(piece)
        except JSON_ERRORS:
            event = _mend(piece, decode)
            if event is None:
                result.lost += 1
            else:
                result.events.append(event)
                result.repaired += 1
    return result


def _pieces(chunk: bytes) -> list[bytes]:
    starts = [0, *(match.end() for match in BOUNDARY.finditer(chunk)), len(chunk)]
    pieces = [chunk[a:b].strip(b", \t\r\n") for a, b in pairwise(starts)]
    return [piece for piece in pieces if piece]


def _mend(piece: bytes, decode: Callable[[bytes], Event]) -> Event | None:
    for repair in (_clean, _requote, _cut_after_array):
        piece = repair(piece)
        try:
            return decode(piece)
        except JSON_ERRORS:
            continue
    return None


def _clean(piece: bytes) -> bytes:
    """Bytes that no JSON holds, bare non-numbers, stray commas, Windows paths."""
    piece = piece.decode("utf-8", "replace").encode()
    piece = _CONTROL.sub(b" ", piece)
    piece = _BARE.sub(rb"\1null", piece)
    piece = _TRAILING_COMMA.sub(rb"\1", piece)
    return _BAD_ESCAPE.sub(rb"\\\\", piece)


def _requote(piece: bytes) -> bytes:
    """Escape quotes inside the name: it ends where the next known key begins."""
    name = _NAME.search(piece)
    after = name and _AFTER_NAME.search(piece, name.end())
    if not name or not after:
        return piece
    text = _UNESCAPED_QUOTE.sub(rb"\"", piece[name.end() : after.start()])
    return piece[: name.end()] + text + piece[after.start() :]


def _cut_after_array(piece: bytes) -> bytes:
    """Drop what follows the end of the events array."""
    match = _ARRAY_CLOSED.search(piece)
    return piece[: match.start() + 1] if match else piece

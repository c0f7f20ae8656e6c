"""Keys that are there twice. The last value counts, as in every JSON reader, but it is said.

PyTorch's exporter in Python copies the notes of a collective into its kernel, beside the kernel's
own. No other writer repeats keys of events, so the events of other traces are not searched.
"""

from __future__ import annotations

import json
from typing import Any

_NOTES = b'"Collective name"'
_EVENT = b'{"ph"'


def count_duplicate_keys(chunk: bytes) -> int:
    """Events of collectives in a chunk of compact events that name a key twice."""
    count, at = 0, chunk.find(_NOTES)
    while at >= 0:
        start, end = chunk.rfind(_EVENT, 0, at), chunk.find(_EVENT, at)
        end = len(chunk) if end < 0 else end
        count += has_duplicate_key(chunk[max(start, 0) : end])
        at = chunk.find(_NOTES, end)
    return count


def has_duplicate_key(text: bytes) -> bool:
    """Whether an object in a JSON text names a key twice; text that does not parse has none."""
    found = False

    def pairs(items: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in items}) < len(items)

    try:
        # Of numbers the length will do: to make one of many digits takes long.
        decoder = json.JSONDecoder(
            object_pairs_hook=pairs, strict=False, parse_int=len, parse_float=len
        )
        decoder.raw_decode(text.decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return False
    return found

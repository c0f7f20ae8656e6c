"""Records hold clean strings only, by their type: whoever makes or reads one need not think of it.

Names come from traces, from file names and from saved results, so from anybody. What could steer a
terminal, reorder the text around a name or break a line of it is taken out where a record comes
into being; so JSON, page, Markdown and terminal say the same, and none of them can forget to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from traceprobe.formatting import shorten

MAX_TEXT = 4_000
"""Characters of a string; of what traceprobe says itself, the longest has a quarter of it."""
MAX_KEY = 1_000
"""Characters of a key, which is a name."""

_PACKED = re.compile(r'"data":"[A-Za-z0-9+/]+={0,2}"')
"""Bytes in JSON: numbers, which may be many."""
_NUMBERS = frozenset({int, float, bool})
_LONG = re.compile(rf'[:,\[{{]"(?:[^"]{{{MAX_TEXT + 1}}}|[^"]{{{MAX_KEY + 1},}}":)')
"""In JSON without quotes in its strings, a string or a key that is too long."""


class Clean(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is clean, however it was made: in Python, from JSON, or from another one."""

    def __post_init__(self) -> None:
        if _is_plain(self):
            return
        for name in self.__struct_fields__:
            msgspec.structs.force_setattr(self, name, cleaned(getattr(self, name)))


def cleaned(value: Any) -> Any:
    """`value` with every string in it clean and of bounded length, keys of mappings too.

    Keys that become one get numbers, so that no value is lost.
    """
    if isinstance(value, str):
        return shorten(value, MAX_TEXT)
    if isinstance(value, msgspec.Struct):
        kept = {name: cleaned(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**kept)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple)):
        if _NUMBERS.issuperset(map(type, value)):
            return value
        return type(value)(cleaned(item) for item in value)
    return value


def _mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, item in value.items():
        name = plain = shorten(key, MAX_KEY) if isinstance(key, str) else key
        number = 2
        while name in found:
            name, number = f"{plain} ({number})", number + 1
        found[name] = cleaned(item)
    return found


def _is_plain(record: msgspec.Struct) -> bool:
    """Whether all strings of a record are clean, as nearly all are.

    Looking at its JSON takes a fraction of what walking through it would.
    """
    try:
        content = msgspec.json.encode(record)
    except (UnicodeEncodeError, OverflowError, TypeError):  # what JSON cannot hold
        return False
    text = content.decode().replace("\\\\", "/").replace('\\"', "'")
    if "\\" in text or not text.isprintable() or "  " in text:
        return False
    text = _PACKED.sub("", text)
    # Hardly ever is one of them too long for a key, and only then it matters which of them are.
    return len(text) <= MAX_KEY or _longest(text.encode()) <= MAX_KEY or not _LONG.search(text)


def _longest(text: bytes) -> int:
    """Bytes of the longest string in JSON without quotes in its strings.

    A report of many ranks has some hundred thousand: a list of them is many times the text.
    """
    import numpy as np  # imported late: whoever makes small records need not have it

    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
    return int(np.diff(quotes)[::2].max(initial=1)) - 1

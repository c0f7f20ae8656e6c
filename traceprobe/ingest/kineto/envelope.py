"""What stands around the events of a Chrome trace: where they end, and the properties of the file.

A file may hold any number of places that look like the end of the events, and of keys whose values
never end. Whatever is tried there is paid for out of a budget that grows with the text, so that
twice the text takes twice the time and no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from traceprobe.ingest.foreign_traces import FOREIGN_KEYS
from traceprobe.ingest.kineto.duplicate_keys import has_duplicate_key
from traceprobe.ingest.untrusted_values import HALF, JSON_ERRORS, bounded_int
from traceprobe.model.quality import Quality

_TAIL = 1 << 20
"""Bytes from the end in which the events end, in all but a few files."""
_PASSES = 8
"""How many times the length of a text may be parsed in search of something."""
_LEAST_COST = 64
"""Bytes that a try costs at least: to begin one takes as long as to parse so many."""
LONGEST_PROPERTY = 1 << 20
"""Bytes of a property's value; the longest of ours is a record of memory of 100 kB."""
_ARRAY_END = re.compile(rb"(?<=\})\s*(?:,\s*)?\](?=\s*(?:,\s*\"|\}|\Z))")
_COMMA = re.compile(rb"\s*,")
_NO_EVENTS = re.compile(rb"\s*\]")
_LENIENT = json.JSONDecoder(strict=False, parse_int=bounded_int)
_BROKEN_AT = re.compile(r"\(byte (\d+)\)")
# Keys of a PyTorch trace beside `traceEvents`; none of them is a key of an event's arguments.
TOP_LEVEL = (
    *("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName"),
    *("displayTimeUnit", "trace_id", "record_shapes", "with_stack", "profile_memory", "with_flops"),
    *("with_modules", "INFO", "WARNING", "ERROR", "cupti_version", "cuda_runtime_version"),
    *("cuda_driver_version", "hip_runtime_version", "hip_driver_version", "roctracer_version"),
    *("host_name", "metadata", "traceprobe"),
)
_KEYS = "|".join(TOP_LEVEL)
_TAIL_BEGINS = re.compile(rb"\s*,\s*\"(?:" + _KEYS.encode() + rb")\"\s*:")
_PROPERTY = re.compile(rf'"({_KEYS})"\s*:\s*')


def split_tail(buffer: bytes, bare_list: bool) -> tuple[bytes, bytes, bool]:
    """The last buffer, cut at the end of the events array: (events, rest, whether it ended).

    The array's end is the leftmost bracket after which the file still parses, or goes on with a
    key that only the top level has: brackets of the events' own arrays are followed by neither, and
    those of the tail come later.
    """
    if bare_list:
        end = buffer.rstrip().removesuffix(b"]")
        return end, b"", end != buffer.rstrip()
    empty = _NO_EVENTS.match(buffer)
    if empty:
        return b"", buffer[empty.end() :], True
    for low in (max(0, len(buffer) - _TAIL), 0):  # a longer tail is rare, and the search is slow
        rest = _Rest(buffer[low:])
        for match in _ARRAY_END.finditer(buffer, low):
            if _TAIL_BEGINS.match(buffer, match.end()) or rest.parses(match.end() - low):
                return buffer[: match.start()], buffer[match.end() :], True
    return buffer, b"", False


class _Rest:
    """Tells whether what follows a place in a text is the rest of an object."""

    def __init__(self, text: bytes) -> None:
        self._text = bytearray(text.rstrip())
        self._closed = self._text.endswith(b"}")
        self._left = _PASSES * len(self._text)

    def parses(self, at: int) -> bool:
        """False, too, once the budget is used up."""
        if not self._closed or self._left <= 0:
            return False
        self._left -= _LEAST_COST
        comma = _COMMA.match(self._text, at)
        if comma is None:
            return self._text.find(b"}", at) == len(self._text) - 1
        # A brace for the comma makes an object of the rest, which need not be copied for that.
        begin = comma.end() - 1
        self._text[begin] = ord("{")
        try:
            msgspec.json.decode(memoryview(self._text)[begin:], type=dict[str, msgspec.Raw])
        except JSON_ERRORS as error:
            broken = _BROKEN_AT.search(str(error))
            self._left -= int(broken[1]) if broken else len(self._text) - begin
            return False
        finally:
            self._text[begin] = ord(",")
        return True


def top_level_properties(head: bytes, tail: bytes, quality: Quality) -> dict[str, Any]:
    """Known top-level keys from before and after the events; a damaged tail costs only itself."""
    before = head.strip().removeprefix(b"\xef\xbb\xbf").rstrip(b", \t\r\n")
    after = tail.strip().removeprefix(b",")
    found: dict[str, Any] = {}
    seen, long = set[str](), set[str]()
    for text in (before + b"}", b"{" + after):
        values = property_texts(text)
        if has_duplicate_key(text) or seen & values.keys():
            quality.warn(
                "duplicate-metadata",
                "The file names one of its properties twice; the last value counts.",
            )
        seen |= values.keys()
        for key, value in values.items():
            if len(value) > LONGEST_PROPERTY:
                long.add(key)
            elif _is_known(key):
                found[key] = _decoded(value)
    if long:
        quality.damaged(
            "oversized-metadata",
            len(long),
            f"properties of the file are longer than {LONGEST_PROPERTY >> 20} MiB; they were left "
            "out.",
        )
    return found


def _is_known(key: str) -> bool:
    """Whether a property is read; tools that rewrite traces spell some of them as they like."""
    return (
        key in TOP_LEVEL or key in FOREIGN_KEYS or key.replace("_", "").lower() == "distributedinfo"
    )


def property_texts(text: bytes) -> dict[str, bytes]:
    """The properties of an object as JSON texts; of one that does not parse, what can be saved."""
    try:
        whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except JSON_ERRORS:
        return dict(_salvaged(text))
    return {key: bytes(raw) for key, raw in whole.items()}


def _salvaged(text: bytes) -> Iterator[tuple[str, bytes]]:
    """The known properties whose values still parse, from a head or tail that does not."""
    readable = text.decode("utf-8", "replace")
    left, found = _PASSES * len(readable), set[str]()
    for match in _PROPERTY.finditer(readable):
        if match[1] in found or left <= 0:
            continue
        begin = match.end()
        left -= _LEAST_COST
        try:
            _, end = _LENIENT.raw_decode(readable, begin)
        except json.JSONDecodeError as error:
            # That of a text is where it begins, although all of it was read; and the error itself
            # counts the lines before it.
            whole = error.msg.startswith("Unterminated")
            left -= (len(readable) if whole else error.pos) - begin + error.pos // 16
        except RecursionError:
            left -= len(readable) - begin
        else:
            left -= end - begin
            found.add(match[1])
            yield match[1], readable[begin:end].encode()


def _decoded(text: bytes) -> Any:
    """A JSON text as a value, None where it is none; halves of characters are replaced."""
    try:
        return msgspec.json.decode(text)
    except JSON_ERRORS:
        pass
    try:
        value = _LENIENT.decode(text.decode("utf-8", "replace"))
        readable = HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False))
        return _LENIENT.decode(readable)
    except (ValueError, RecursionError):
        return None

"""A Chrome trace as bounded pieces of whole events: head, chunks, tail.

The trace is never held as one string. Chunks are cut at the last place in the buffer where one
event ends and the next begins; the text before and after `traceEvents` is parsed apart.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from traceprobe.ingest.limits import DEFAULT, Limits, Unpacked

CHUNK = 2 << 20
"""Decompressed bytes per chunk."""
_SEARCH = (8 << 10, 256 << 10)
"""Bytes from the end in which a chunk may be cut; few events are longer than the first."""
_TAIL = 1 << 20
LONGEST = 16 << 20
"""Bytes of an event, or of what precedes the first: more is left out before it fills memory."""
_ENDS = 1_000
"""Places that are tried as the end of the events."""
_TRIES = 8
"""Places at which a damaged key is looked for."""
_KEYS = rb"ph|name|cat|ts|pid|tid|args|id|dur|s|bp"
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*\"(?:" + _KEYS + rb")\"\s*:)")
_ARRAY = re.compile(rb"\"traceEvents\"\s*:\s*\[")
_ARRAY_END = re.compile(rb"(?<=\})\s*(?:,\s*)?\](?=\s*(?:,\s*\"|\}|\Z))")
_COMMA = re.compile(rb"\s*,")
_NO_EVENTS = re.compile(rb"\s*\]")
# Keys of a PyTorch trace beside `traceEvents`; none of them is a key of an event's arguments.
TOP_LEVEL = (
    *("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName"),
    *("displayTimeUnit", "trace_id", "record_shapes", "with_stack", "profile_memory", "with_flops"),
    *("with_modules", "INFO", "WARNING", "ERROR", "cupti_version", "cuda_runtime_version"),
    *("cuda_driver_version", "hip_runtime_version", "hip_driver_version", "roctracer_version"),
    *("host_name", "metadata", "traceprobe"),
)
_TAIL_BEGINS = re.compile(rb"\s*,\s*\"(?:" + "|".join(TOP_LEVEL).encode() + rb")\"\s*:")


@dataclass
class Reader:
    """Reads a file once: `blocks()` yields decompressed bytes while it hashes and counts."""

    path: Path
    gzipped: bool
    progress: Callable[[int, int], None]
    limits: Limits = DEFAULT
    truncated: bool = False
    digest: Any = field(default_factory=hashlib.sha256)

    def blocks(self) -> Iterator[bytes]:
        """Decompressed blocks of at most CHUNK bytes; a cut or broken gzip stream ends early.

        Raises:
            DamagedInput: it unpacks to more than the limit.
        """
        total, done = self.path.stat().st_size, 0
        inflate, unpacked = _Inflate(), Unpacked(self.path, self.limits)
        with self.path.open("rb") as file:
            while block := file.read(CHUNK // 12 if self.gzipped else CHUNK):
                self.digest.update(block)
                done += len(block)
                if not self.gzipped:
                    yield block
                elif not self.truncated:
                    try:
                        for plain in inflate(block):
                            unpacked.add(len(plain))
                            yield plain
                    except zlib.error:
                        self.truncated = True
                self.progress(done, total)
        self.truncated |= inflate.inside


class _Inflate:
    """Streaming gunzip of concatenated members; `inside` says that a member has not ended."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self.inside = False

    def __call__(self, block: bytes) -> Iterator[bytes]:
        while block:
            self.inside = True
            yield self._decoder.decompress(block, CHUNK)
            block = self._decoder.unconsumed_tail
            if self._decoder.eof:
                block = self._decoder.unused_data.lstrip(b"\0")
                self._decoder = zlib.decompressobj(wbits=31)
                self.inside = False


def ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, each made on another thread while the one before is being used.

    Decompression and hashing release the interpreter lock, so they cost no time of their own.
    """
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


@dataclass
class Split:
    """Splits a byte stream into chunks; `head` and `tail` are complete once iteration is over."""

    head: bytes = b""
    tail: bytes = b""
    first: bytes = b""
    bare_list: bool = False
    ended: bool = False
    oversized: int = 0

    def chunks(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield comma-separated events without brackets; after the last one set `tail`."""
        buffer = b""
        for block in blocks:
            buffer += block
            start = self._start(buffer)
            if start >= 0:
                buffer = buffer[start:].lstrip()
                self.first = buffer[:16]
                break
            if len(buffer) > LONGEST:
                self.head = buffer
                return
        else:
            self.head = buffer
            return
        for block in blocks:
            buffer += block
            if len(buffer) < CHUNK:
                continue
            cut = _last_boundary(buffer)
            if cut:
                yield buffer[:cut]
                buffer = buffer[cut:].lstrip(b", \t\r\n")
            elif len(buffer) > LONGEST:  # what is left of this event fails, and is counted, later
                self.oversized += 1
                yield buffer[: _last_boundary(buffer, (len(buffer),))]
                buffer = b""
        events, self.tail, self.ended = split_tail(buffer, self.bare_list)
        if events.strip():
            yield events

    def _start(self, buffer: bytes) -> int:
        if buffer.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
            self.bare_list = True
            return buffer.index(b"[") + 1
        match = _ARRAY.search(buffer)
        if match is None:
            return -1
        self.head = buffer[: match.start()]
        return match.end()


def _last_boundary(buffer: bytes, reaches: tuple[int, ...] = _SEARCH) -> int:
    """Offset just after the `}` of the last event that another follows, or 0."""
    last = 0
    for reach in reaches:
        for match in BOUNDARY.finditer(buffer, max(0, len(buffer) - reach)):
            last = match.start() + 1
        if last:
            break
    return last


def split_tail(buffer: bytes, bare_list: bool) -> tuple[bytes, bytes, bool]:
    """Cut the last buffer at the end of the events array: (events, rest, whether it ended).

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
        for match in islice(_ARRAY_END.finditer(buffer, low), _ENDS):
            if _TAIL_BEGINS.match(buffer, match.end()) or _parses(buffer, match.end()):
                return buffer[: match.start()], buffer[match.end() :], True
    return buffer, b"", False


def _parses(buffer: bytes, at: int) -> bool:
    """Whether what follows the events is the rest of an object."""
    comma = _COMMA.match(buffer, at)
    if comma is None:
        return buffer[at : at + _TAIL].strip() == b"}"
    return parse_object(b"{" + buffer[comma.end() :]) is not None


def salvage_keys(text: bytes) -> dict[str, Any]:
    """The known top-level keys whose values still parse, from a head or tail that does not."""
    found: dict[str, Any] = {}
    decoder = json.JSONDecoder(strict=False)
    readable = text.decode("utf-8", "replace")
    for key in TOP_LEVEL:
        for match in islice(re.finditer(rf'"{key}"\s*:\s*', readable), _TRIES):
            try:
                found[key] = decoder.raw_decode(readable, match.end())[0]
                break
            except (ValueError, RecursionError):
                continue
    return found


def parse_object(text: bytes) -> dict[str, Any] | None:
    """`text` as a JSON object, or None."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

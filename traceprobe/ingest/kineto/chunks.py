"""A Chrome trace as bounded pieces of whole events: head, chunks, tail.

The trace is never held as one string. Chunks are cut at the last place in the buffer where one
event ends and the next begins; the text before and after `traceEvents` is parsed apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from traceprobe.ingest.gunzip import Gunzip
from traceprobe.ingest.kineto.envelope import split_tail
from traceprobe.ingest.limits import DEFAULT_LIMITS, Limits, UnpackedBudget

CHUNK = 2 << 20
"""Decompressed bytes per chunk."""
_SEARCH = (8 << 10, 256 << 10)
"""Bytes from the end in which a chunk may be cut; few events are longer than the first."""
LONGEST = 16 << 20
"""Bytes of an event, or of what precedes the first: more is left out before it fills memory."""
_KEYS = rb"ph|name|cat|ts|pid|tid|args|id|dur|s|bp"
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*\"(?:" + _KEYS + rb")\"\s*:)")
_ARRAY = re.compile(rb"\"traceEvents\"\s*:\s*\[")


class BlockReader(msgspec.Struct):
    """Reads a file once: `blocks()` yields decompressed bytes while it hashes and counts.

    Args:
        truncated: a gzip stream is cut or broken. wrong_sums: members of one whose sum is wrong.
    """

    path: Path
    gzipped: bool
    progress: Callable[[int, int], None]
    limits: Limits = DEFAULT_LIMITS
    truncated: bool = False
    wrong_sums: int = 0
    digest: Any = msgspec.field(default_factory=hashlib.sha256)

    def blocks(self) -> Iterator[bytes]:
        """Decompressed blocks; a cut or broken gzip stream ends early.

        Raises:
            DamagedInput: it unpacks to more than the limit.
        """
        if not self.gzipped:
            yield from self._stored(CHUNK)
            return
        stream, unpacked = Gunzip(), UnpackedBudget(self.path, self.limits)
        for plain in stream.pieces(self._stored(CHUNK // 12)):
            unpacked.add(len(plain))
            yield plain
        self.truncated, self.wrong_sums = stream.cut, stream.wrong_sums

    def _stored(self, size: int) -> Iterator[bytes]:
        """The file as it is."""
        total, done = self.path.stat().st_size, 0
        with self.path.open("rb") as file:
            while block := file.read(size):
                self.digest.update(block)
                done += len(block)
                yield block
                self.progress(done, total)


def read_ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, each made on another thread while the one before is being used.

    Decompression and hashing release the interpreter lock, so they cost no time of their own.
    """
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


class EventSplitter(msgspec.Struct):
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

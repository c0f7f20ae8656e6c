"""Long bytes for another process, through memory that both have open.

A pipe takes little at once: who writes more waits until the other has read it, which may be busy.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pickle import PickleBuffer
from typing import NamedTuple

SLOTS = 4
"""How often something may be put there before the first is overwritten."""
_ROOM = 64 << 20
"""Bytes for each time; what is longer goes through the pipe."""
_WIDE = 1 << 20
"""Bytes that a pipe is to take at once: as many as anybody may ask for."""


class Place(NamedTuple):
    """Where bytes are: in the memory of a number, which is the same in both processes."""

    memory: int
    offset: int
    length: int


class PassedMemory:
    """Memory for one other process, which inherits `number`; there is none without Linux."""

    def __init__(self) -> None:
        self._turn = 0
        self.number: int | None = None
        with suppress(AttributeError, OSError):
            self.number = os.memfd_create("traceprobe")

    @property
    def inherited(self) -> Sequence[int]:
        """What a process has to inherit."""
        return [] if self.number is None else [self.number]

    def put(self, buffers: Iterable[PickleBuffer]) -> list[Place | bytes]:
        """Where the other finds some bytes; themselves where they do not fit."""
        self._turn = (self._turn + 1) % SLOTS
        offset, found = self._turn * _ROOM, list[Place | bytes]()
        for buffer in buffers:
            length = buffer.raw().nbytes
            if self._written(buffer, offset, length):
                found.append(Place(self.number or 0, offset, length))
                offset += length
            else:
                found.append(bytes(buffer))
        return found

    def _written(self, buffer: PickleBuffer, offset: int, length: int) -> bool:
        if self.number is None or offset + length > (self._turn + 1) * _ROOM:
            return False
        with suppress(OSError):
            return os.pwrite(self.number, buffer, offset) == length
        return False

    def close(self) -> None:
        """Give it back; what the other has not fetched is lost."""
        number, self.number = self.number, None
        if number is not None:
            os.close(number)


def fetched(place: Place | bytes) -> bytes:
    """Bytes that another process has put somewhere."""
    if isinstance(place, bytes):
        return place
    return os.pread(place.memory, place.length, place.offset)


def widen(pipe: int) -> None:
    """Let a pipe take more before who writes into it has to wait, where that can be set."""
    with suppress(AttributeError, OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WIDE)

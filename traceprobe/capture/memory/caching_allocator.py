"""How much the caching allocator of PyTorch reserves for a sequence of allocations.

A replay of the documented rules of its default configuration, for one stream: requests are rounded
up to 512 bytes; up to 1 MB they are served from segments of 2 MB, below 10 MB from segments of
20 MB, above from segments of their own in multiples of 2 MB; the smallest free block that fits is
taken, and split where enough is left; neighbours that are both free are joined. Segments are never
given back, so that what is reserved is also what fragmentation costs. (`CUDACachingAllocator.cpp`,
and the notes on memory management in PyTorch's documentation.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass

from traceprobe.capture.memory.allocation_log import MIN_BLOCK_BYTES, round_to_blocks

MB = 1 << 20
SMALL = 1 * MB
"""Requests up to this size come from the small pool."""
SMALL_SEGMENT, LARGE_SEGMENT, ROUND_LARGE = 2 * MB, 20 * MB, 2 * MB
OWN_SEGMENT = 10 * MB
"""Requests from this size on get a segment of their own."""


@dataclass(slots=True, eq=False)
class _Block:
    """A part of a segment, between its neighbours."""

    start: int
    size: int
    small: bool
    free: bool = False
    before: _Block | None = None
    after: _Block | None = None


class CachingAllocator:
    """Keeps only sizes and places; `reserved` is the bytes of all segments so far."""

    def __init__(self) -> None:
        self.reserved = 0
        self._used: dict[Hashable, _Block] = {}
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        """Size and start of the free pieces of the small and of the large pool, in order."""
        self._pieces: dict[int, _Block] = {}

    def allocate(self, key: Hashable, nbytes: int) -> None:
        """Take a block; nothing for an empty one."""
        size = round_to_blocks(nbytes)
        if not size:
            return
        small = size <= SMALL
        free = self._free[small]
        place = bisect_left(free, (size, -1))
        if place < len(free):
            piece = self._pieces[free.pop(place)[1]]
            piece.free = False
        else:
            piece = self._segment(size, small)
        self._split(piece, size)
        self._used[key] = piece

    def free(self, key: Hashable) -> None:
        """Give a block back."""
        piece = self._used.pop(key, None)
        if piece is None:
            return
        for other in (piece.before, piece.after):
            if other is not None and other.free:
                self._take_out(other)
                piece = self._join(piece, other)
        self._put(piece)

    def _segment(self, size: int, small: bool) -> _Block:
        whole = SMALL_SEGMENT if small else LARGE_SEGMENT
        if size >= OWN_SEGMENT:
            whole = -(-size // ROUND_LARGE) * ROUND_LARGE
        piece = _Block(self.reserved, whole, small)
        self._pieces[piece.start] = piece
        self.reserved += whole
        return piece

    def _split(self, piece: _Block, size: int) -> None:
        left = piece.size - size
        if left < MIN_BLOCK_BYTES if piece.small else left <= SMALL:
            return
        rest = _Block(piece.start + size, left, piece.small, False, piece, piece.after)
        if piece.after is not None:
            piece.after.before = rest
        piece.after, piece.size = rest, size
        self._pieces[rest.start] = rest
        self._put(rest)

    def _join(self, piece: _Block, other: _Block) -> _Block:
        first, second = sorted((piece, other), key=lambda p: p.start)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        del self._pieces[second.start]
        return first

    def _put(self, piece: _Block) -> None:
        piece.free = True
        insort(self._free[piece.small], (piece.size, piece.start))

    def _take_out(self, piece: _Block) -> None:
        free = self._free[piece.small]
        del free[bisect_left(free, (piece.size, piece.start))]
        piece.free = False

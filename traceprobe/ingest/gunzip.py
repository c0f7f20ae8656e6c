"""Streaming gunzip that keeps all that decodes, in work that grows with the stream and no faster.

A stream may be cut, broken, or right but for a check sum; and it may be made of millions of
members of a byte each.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from traceprobe.model.quality import Quality

_READ = 64 << 10
PIECE = 2 << 20
"""Decompressed bytes that are handed on together."""
_FIRST_FEED = 512
"""Bytes of a member that are decoded before it is known to be longer."""
_CHECK_BYTES = 4
"""Length of each of the two checks behind a member."""
_LENGTH_FOLLOWS = "incorrect data check"
_LENGTH_IS_WRONG = "incorrect length check"


def unpacked_head(path: Path, most: int) -> tuple[bytes, str | None]:
    """The first `most` bytes behind gzip, as far as they decode.

    Returns:
        With them what is wrong with the stream, as a predicate, where it holds fewer.
    """
    stream, pieces, length = Gunzip(), list[bytes](), 0
    with path.open("rb") as file:
        for piece in stream.pieces(iter(lambda: file.read(_READ), b""), _READ):
            pieces.append(piece)
            length += len(piece)
            if length >= most:
                return b"".join(pieces)[:most], None
    if stream.broken is not None:
        return b"".join(pieces), f"is broken ({stream.broken})"
    return b"".join(pieces), "is cut off" if stream.inside else None


class Gunzip:
    """Decoder of concatenated members.

    Args:
        broken: why the stream cannot be decoded further, None where it can.
        inside: the last member has not ended.
        wrong_sums: members whose content does not fit the sum or the length behind it.
    """

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self._skip = 0
        self.broken: str | None = None
        self.inside = False
        self.wrong_sums = 0

    @property
    def cut(self) -> bool:
        """Whether something is missing at the end."""
        return self.inside or self.broken is not None

    def pieces(self, blocks: Iterable[bytes], size: int = PIECE) -> Iterator[bytes]:
        """What a stream decodes to, in pieces of `size` bytes or a little more.

        Args:
            blocks: the stream; all of it is taken, also behind a place where it is broken.
        """
        kept, length = list[bytes](), 0
        for block in blocks:
            for plain in self._decoded(memoryview(block), size):
                kept.append(plain)
                length += len(plain)
                if length >= size:
                    yield b"".join(kept)
                    kept, length = [], 0
        if kept:
            yield b"".join(kept)

    def _decoded(self, block: memoryview, most: int) -> Iterator[bytes]:
        at, feed = 0, _FIRST_FEED
        while at < len(block) and self.broken is None:
            if self._skip or (not self.inside and block[at] == 0):  # padding between members
                self._skip = max(self._skip - 1, 0)
                at += 1
                continue
            self.inside = True
            # What a decoder leaves to the next one is copied, so it is fed little at first.
            fed = block[at : at + feed]
            before = self._decoder.copy()
            try:
                plain = self._decoder.decompress(fed, most)
            except zlib.error:
                plain, used = self._byte_by_byte(before, fed)
            else:
                rest = self._decoder.unused_data or self._decoder.unconsumed_tail
                used = len(fed) - len(rest)
            if plain:
                yield plain
            at, feed = at + used, feed * 2
            if self._decoder.eof:
                self._begin()
                feed = _FIRST_FEED

    def _begin(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self.inside = False

    def _byte_by_byte(self, decoder: zlib._Decompress, fed: memoryview) -> tuple[bytes, int]:
        """What can be decoded before an error, and how much of the stream that takes.

        A wrong sum ends its member only; the next one begins behind it.
        """
        plain = []
        for number in range(len(fed)):
            try:
                plain.append(decoder.decompress(fed[number : number + 1]))
            except zlib.error as error:
                if _LENGTH_FOLLOWS in str(error) or _LENGTH_IS_WRONG in str(error):
                    self.wrong_sums += 1
                    self._skip = _CHECK_BYTES if _LENGTH_FOLLOWS in str(error) else 0
                    self._begin()
                else:
                    self.broken = str(error)
                return b"".join(plain), number + 1
        raise AssertionError("what failed at once failed byte by byte, too")


def warn_of_checksums(quality: Quality, members: int) -> None:
    """Say that what was read may not be what was written."""
    if members:
        quality.damaged(
            "gzip-checksum",
            members,
            "gzip members do not fit their check sums: some bit of the file is wrong, and so may "
            "be a value. What decodes was read; copy the file again.",
        )

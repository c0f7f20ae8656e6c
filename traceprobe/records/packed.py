"""Tables of numbers, packed: too many to be written out in JSON."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceprobe.records.texts import Numbers, Word

Int64s = NDArray[np.int64]

MOST_ROWS = 2_000_000
"""Rows of a table that is read; none that traceprobe writes has as many."""
MOST_BYTES = 8
"""Of a number, which fits an int64."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of non-negative integers of equal length.

    Args:
        widths: bytes of a number, by column.
        data: the columns in the order of their names, deflated (zlib); JSON has it in base64. Of a
            column first all lowest bytes, then all second ones.
    """

    rows: int
    widths: dict[Word, int]
    data: Numbers

    @classmethod
    def of(cls, columns: Mapping[str, Int64s]) -> Table:
        """Pack columns. Raises ValueError where a number is negative."""
        widths: dict[str, int] = {}
        packed: list[bytes] = []
        for name, values in sorted(columns.items()):
            width = max((int(values.max(initial=0)).bit_length() + 7) // 8, 1)
            if values.min(initial=0) < 0:
                raise ValueError(f"column {name}: a number is negative")
            octets = np.ascontiguousarray(values, dtype="<i8").view(np.uint8)
            packed.append(octets.reshape(-1, MOST_BYTES)[:, :width].T.tobytes())
            widths[name] = width
        data = zlib.compress(b"".join(packed), 9)
        return cls(rows=len(next(iter(columns.values()))), widths=widths, data=data)

    def columns(self) -> dict[str, Int64s]:
        """The columns. Raises ValueError where `data` does not hold them."""
        if not 0 <= self.rows <= MOST_ROWS or not all(
            1 <= width <= MOST_BYTES for width in self.widths.values()
        ):
            raise ValueError("a packed table has impossible sizes")
        size = self.rows * sum(self.widths.values())
        try:
            stream = zlib.decompressobj()
            unpacked = stream.decompress(self.data, size + 1)
        except zlib.error as error:
            raise ValueError(f"a packed table cannot be read: {error}") from error
        if len(unpacked) != size or not stream.eof or stream.unused_data:
            raise ValueError("a packed table has another size than it says")
        found, at = {}, 0
        for name, width in sorted(self.widths.items()):
            octets = np.zeros((self.rows, MOST_BYTES), dtype=np.uint8)
            part = np.frombuffer(unpacked, np.uint8, self.rows * width, at)
            octets[:, :width] = part.reshape(width, self.rows).T
            found[name] = octets.view("<i8")[:, 0].astype(np.int64)
            if found[name].min(initial=0) < 0:
                raise ValueError("a packed table has a number that is too large")
            at += self.rows * width
        return found

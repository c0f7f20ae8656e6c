"""Files with holes: a terabyte of zeros that no disk holds, and that takes an hour to read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from traceprobe.errors import DamagedInput

LEAST_UNPACKED = 4 << 30
"""Bytes that any file may unpack to: a trace of that size takes less than 4 GB of memory."""
MOST_RATIO = 64
"""Traces compress by up to 30; gzip cannot do better than 1,032."""
_MOST_PARTS = 10_000
"""Stretches of data between holes that are counted; what follows counts as if it were none."""


def stored_bytes(path: Path) -> int:
    """Bytes of a file that are not in holes; all of them where the system does not tell.

    The blocks that a file takes do not say it: file systems compress, and some report none.
    """
    with path.open("rb") as file:
        return _stored(file)


def refuse_sparse_file(path: Path, file: BinaryIO) -> None:
    """Stop where a file is next to nothing but holes: it may be as large as one that was packed.

    Raises:
        DamagedInput: that is so.
    """
    size = os.fstat(file.fileno()).st_size
    if size > LEAST_UNPACKED and size > MOST_RATIO * (stored := _stored(file)):
        raise DamagedInput(
            f"{path.name}: {size:,} bytes, of which {stored:,} are stored and the rest are holes; "
            "copy the file again"
        )


def _stored(file: BinaryIO) -> int:
    number = file.fileno()
    size = os.fstat(number).st_size
    if not hasattr(os, "SEEK_DATA"):
        return size
    place, end, stored = os.lseek(number, 0, os.SEEK_CUR), 0, 0
    try:
        for _ in range(_MOST_PARTS):
            begin = os.lseek(number, end, os.SEEK_DATA)
            end = os.lseek(number, begin, os.SEEK_HOLE)
            stored += end - begin
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is no more data; else nothing is known
            return size
    finally:
        os.lseek(number, place, os.SEEK_SET)
    return stored

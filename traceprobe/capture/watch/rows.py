"""The file in which a watched process keeps what happens to it: rows of one size.

A row is written when something has ended: a step, a collection of garbage, the saving of a file.
Times are those of `time.perf_counter_ns`. A row that a kill cut off is no row.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

ROW = struct.Struct("<BxHIqqqq")
"""As `Row`, little-endian."""
SUFFIX = ".rows"
READINGS = ".readings"
FACTS = ".facts"
"""Files of a process: its rows; a JSON object a line for each reading of clock and memory; one
JSON object about the process itself."""


class Kind(IntEnum):
    """What a row is about, and how many of what."""

    STEP = 1
    """Steps."""
    COLLECTION = 2
    """The generation of Python's garbage collector."""
    SAVE = 3
    """Nothing."""
    EVALUATION = 4
    """Batches of a loader that feeds no step."""
    COMPILATION = 5
    """Graphs that `torch.compile` made."""
    RETRY = 6
    """Times that the allocator gave back all it had cached and asked the device again."""
    PASS = 7
    """Passes over the loader that began."""
    CAPTURE = 8
    """Steps up to this one that a short capture of ours lengthened; the time is its pauses'."""


class Row(NamedTuple):
    """Something that took place.

    Args:
        number: of the step in which it ended, or of the first of several.
        many: see `Kind`.
        end_ns, ns: when it ended, how long it took. Of several steps the sum.
        wait_ns: of a step, the time in which its loop waited for its loader.
        longest_ns: of several steps, the longest.
    """

    kind: int
    number: int
    many: int
    end_ns: int
    ns: int
    wait_ns: int = 0
    longest_ns: int = 0


class RowLog:
    """Rows of this process, kept until they are written.

    Args:
        path: file to begin.
    """

    def __init__(self, path: Path) -> None:
        self._rows: list[Row] = []
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, row: Row) -> None:
        """Keep a row. Any thread may."""
        self._rows.append(row)

    def write(self) -> None:
        """Write what has been kept. One thread at a time may."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        content = b"".join(
            ROW.pack(
                *(kind, min(many, 0xFFFF), min(number, 0xFFFFFFFF)),
                *(end_ns, ns, wait_ns, longest_ns),
            )
            for kind, number, many, end_ns, ns, wait_ns, longest_ns in rows
        )
        os.write(self._file, content)

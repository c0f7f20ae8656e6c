"""How many processes decode the events of a trace, and how they begin before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traceprobe.ingest.detect_format import DetectedFormat, detect_format

SHARE = 24 << 20
"""Bytes of JSON that a process should find to do: less takes no longer than to start it."""
MOST_SHARES = 4
"""What more processes decode, the one that puts it together does not keep up with."""
DECODER = "traceprobe.ingest.kineto.chunk_columns"
"""Module that they need."""
_UNPACKED = 12
"""Bytes of JSON in a byte of gzip, about."""


def shares(path: Path, detected: DetectedFormat, jobs: int) -> int:
    """The processes, this one included, of up to `jobs`."""
    unpacked = path.stat().st_size * (_UNPACKED if detected.gzipped else 1)
    return max(min(jobs, MOST_SHARES, unpacked // SHARE), 1)


@contextmanager
def decoders_ahead(path: Path, jobs: int) -> Iterator[None]:
    """The other processes start here, while this one imports what it reads a trace with.

    Raises:
        TraceprobeError, OSError: as `detect_format`.
    """
    detected = detect_format(path)
    others = shares(path, detected, jobs) - 1 if detected.format == "kineto" else 0
    if not others:
        yield
        return
    from traceprobe.system.shared_work import begun_ahead  # that takes its time

    with begun_ahead(DECODER, others):
        yield

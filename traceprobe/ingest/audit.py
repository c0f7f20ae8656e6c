"""Reads the rows of a file that show whether it was written right, see `audit_rows`."""

from __future__ import annotations

from pathlib import Path

from traceprobe.ingest.audit_rows import Audit
from traceprobe.ingest.detect_format import recognise


def audit(path: str | Path) -> Audit:
    """Read those rows of one file. Errors are those of `traceprobe.ingest.load`."""
    file = Path(path)
    found = recognise(file)
    if found.format == "nsys":
        from traceprobe.ingest.nsight.audit import read
    else:
        from traceprobe.ingest.kineto.audit import read
    return read(file, found)

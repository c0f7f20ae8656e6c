"""Reads the rows of a file that show whether it was written right, see `audit_rows`."""

from __future__ import annotations

from pathlib import Path

from traceprobe.ingest.audit_rows import AuditRows
from traceprobe.ingest.detect_format import detect_format


def read_audit(path: str | Path) -> AuditRows:
    """The audit rows of one file. Errors are those of `traceprobe.ingest.read_trace`."""
    file = Path(path)
    detected = detect_format(file)
    if detected.format == "nsys":
        from traceprobe.ingest.nsight.audit import read_nsight_audit as read
    else:
        from traceprobe.ingest.kineto.audit import read_kineto_audit as read
    return read(file, detected)

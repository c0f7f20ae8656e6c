"""One trace file as a `Trace`: its format is told by its content, its bytes become columns.

The rows that show whether it was written right, see `audit_rows`, are read only on demand.

Nothing is dropped silently here: what is repaired, lost or cannot be linked is counted in
`Trace.quality`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.errors import AbsentInput, DamagedInput
from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.limits import DEFAULT_LIMITS, Limits
from traceprobe.system.reading import errors_named

if TYPE_CHECKING:
    from traceprobe.ingest.audit_rows import AuditRows
    from traceprobe.model.events import Trace

Progress = Callable[[int, int], None]
"""Called with (bytes of the file consumed, bytes of the file)."""


def absent(path: Path) -> AbsentInput:
    """The error about a file that is not there."""
    return AbsentInput(
        f"{path.name}: is absent; check the path, and the folder that it is relative to"
    )


def read_trace(
    path: str | Path,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    jobs: int = 1,
) -> Trace:
    """The trace in a Kineto Chrome trace or an Nsight Systems SQLite export, plain or gzipped.

    Args:
        jobs: how much of a large file may be read at once, by other processes or threads.

    Raises:
        UnsupportedInput: the content is neither; the message names the command that converts it.
        DamagedInput: it is one of them, but no part of it can be read, it exceeds a limit, or it
            changed meanwhile.
        EmptyTrace: it holds neither GPU work nor host phases.
        AbsentInput: there is no such file.
        OSError: the file cannot be opened.
    """
    file = Path(path)
    try:
        before = _state(file)
    except FileNotFoundError as error:
        raise absent(file) from error
    detected = detect_format(file)
    if detected.format == "nsys":
        from traceprobe.ingest.nsight.read import read_nsight as read
    else:
        from traceprobe.ingest.kineto.read import read_kineto as read
    with errors_named(file):
        trace = read(file, detected, progress or (lambda done, total: None), limits, jobs)
    if _state(file) != before:
        raise DamagedInput(
            f"{file.name}: was changed while it was read; analyse it again when it is complete"
        )
    from traceprobe.ingest.trace_size import check_trace_size  # needs what made the trace

    check_trace_size(trace, limits)
    return trace


def read_audit(path: str | Path) -> AuditRows:
    """The audit rows of one file. Errors are those of `read_trace`."""
    file = Path(path)
    detected = detect_format(file)
    if detected.format == "nsys":
        from traceprobe.ingest.nsight.audit import read_nsight_audit as read
    else:
        from traceprobe.ingest.kineto.audit import read_kineto_audit as read
    return read(file, detected)


def _state(file: Path) -> tuple[int, int, int, int]:
    """What differs once a file has been written to or replaced, also with its old time put back."""
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

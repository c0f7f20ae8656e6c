"""Bytes to columns: recognise a file by its content and read it into a `Trace`.

Nothing is dropped silently here: what is repaired, lost or cannot be linked is counted in
`Trace.quality`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceprobe.errors import DamagedInput
from traceprobe.ingest.detect_format import recognise
from traceprobe.ingest.limits import DEFAULT, Limits, check
from traceprobe.model.events import Trace
from traceprobe.system.reading import naming

Progress = Callable[[int, int], None]
"""Called with (bytes of the file consumed, bytes of the file)."""


def load(path: str | Path, progress: Progress | None = None, limits: Limits = DEFAULT) -> Trace:
    """Read one Kineto Chrome trace or one Nsight Systems SQLite export, plain or gzipped.

    Raises:
        UnsupportedInput: the content is neither; the message names the command that converts it.
        DamagedInput: it is one of them, but no part of it can be read, it exceeds a limit, or it
            changed meanwhile.
        EmptyTrace: it holds neither GPU work nor host phases.
        OSError: the file cannot be opened.
    """
    file = Path(path)
    before = _state(file)
    found = recognise(file)
    if found.format == "nsys":
        from traceprobe.ingest.nsight.read import read
    else:
        from traceprobe.ingest.kineto.read import read
    with naming(file):
        trace = read(file, found, progress or (lambda done, total: None), limits)
    if _state(file) != before:
        raise DamagedInput(
            f"{file.name}: was changed while it was read; analyse it again when it is complete"
        )
    check(trace, limits)
    return trace


def _state(file: Path) -> tuple[int, int, int, int]:
    """What differs once a file has been written to or replaced, also with its old time put back."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

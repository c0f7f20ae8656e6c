"""Reading one trace, through the cache where one is wanted."""

from __future__ import annotations

import warnings
from pathlib import Path

from traceprobe.ingest.limits import DEFAULT_LIMITS, Limits
from traceprobe.ingest.read_trace import Progress, read_trace
from traceprobe.model.events import Trace
from traceprobe.pipeline import cache as cached


def load(
    path: str | Path,
    progress: Progress | None = None,
    cache: str | Path | None = None,
    limits: Limits | None = None,
) -> Trace:
    """Read one trace file: a Kineto Chrome trace or an Nsight Systems SQLite export, plain or gz.

    Args:
        progress: called with (bytes of the file consumed, bytes of the file).
        cache: folder with columns of files that were read before. Those of this file are taken from
            it, or kept in it; a warning where that fails.
        limits: what the file may hold before it is refused.

    Returns:
        The trace as typed columns in int64 ns; see `traceprobe.model.events`.

    Raises:
        UnsupportedInput: the content is neither format; the message names the remedy.
        DamagedInput: too little of the file survives, or it exceeds a limit.
        EmptyTrace: neither GPU work nor host phases.
        OSError: the file cannot be opened.
    """
    if cache is None:
        return read_trace(path, progress, limits or DEFAULT_LIMITS)
    trace, use = cached.load(Path(path), Path(cache), progress, limits or DEFAULT_LIMITS)
    if use.failed:
        warnings.warn(f"{Path(path).name}: {use.text}", stacklevel=2)
    return trace

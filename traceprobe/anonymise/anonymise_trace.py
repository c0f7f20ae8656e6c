"""A copy of a trace without private names, for a bug report: it is analysed as the trace is.

Structure, durations, kinds and correlations stay; the clock begins anew. Names keep the words that
public libraries use and what the analysis knows them by. Nothing is analysed on the way, so that a
trace can be passed on that traceprobe cannot read.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from traceprobe.errors import DamagedInput
from traceprobe.ingest.detect_format import detect_format
from traceprobe.system.atomic_write import compress, write_beside


def anonymise_trace(source: Path, target: Path, *, replace: bool = False) -> None:
    """Write the copy, gzipped if its name ends in .gz.

    Args:
        replace: whether a file of that name is overwritten.

    Raises:
        UnsupportedInput, DamagedInput: the source is no trace, or too little of it survives.
        UsageError: the target cannot be written.
    """
    detected = detect_format(source)
    try:
        with write_beside(target, replace=replace) as temporary:
            if detected.format == "nsys":
                from traceprobe.anonymise.nsight import write_nsight_copy as write
            else:
                from traceprobe.anonymise.kineto import write_kineto_copy as write
            write(source, temporary)
            if target.suffix == ".gz":
                compress(temporary)
    except sqlite3.DatabaseError as error:
        raise DamagedInput(
            f"{source.name}: the SQLite file is damaged ({error}); a copy of it cannot be made"
        ) from error

"""Nsight Systems exports without private names: what a slice holds, every text replaced."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path

from traceprobe.anonymise.kineto import public_recording
from traceprobe.anonymise.names import public_name
from traceprobe.slicing.nsight_columns import COUNTERS
from traceprobe.slicing.nsight_tables import copy_strings, copy_table, new_export, public_columns
from traceprobe.version import __version__

_LEFT_OUT = ("TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS")
"""Tables that say when the capture was, and nothing that is read."""
_METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_TIMES = ("start", "end", "timestamp")
_FUNCTIONS = {"anonymous": public_name}


def write_nsight_copy(source: Path, target: Path) -> None:
    """Write the copy as a database of its own."""
    with new_export(source, target, _FUNCTIONS) as db:
        db.create_function("anonymous_record", 1, _record, deterministic=True)
        columns = {t: c for t, c in public_columns(db).items() if t not in _LEFT_OUT}
        first = _first(db, columns)
        for table, present in columns.items():
            copy_table(db, table, present, change=partial(_changed, table, first))
        copy_strings(db, columns, "anonymous(CAST(value AS BLOB))")
        db.execute("CREATE TABLE main.traceprobe_anonymised (version TEXT)")
        db.execute("INSERT INTO main.traceprobe_anonymised VALUES (?)", [__version__])


def _record(written: object) -> str:
    """What the capture of traceprobe left, as slices have it, with public names."""
    known = json.loads(str(written)) if isinstance(written, str) else {}
    return json.dumps(public_recording(known), sort_keys=True)


def _first(db: sqlite3.Connection, columns: dict[str, list[str]]) -> int:
    """The earliest time of the kept tables, ns."""
    known = "typeof(start) = 'integer' AND start > 0"
    found = [
        db.execute(f'SELECT min(start) FROM source."{name}" WHERE {known}').fetchone()[0]
        for name, present in columns.items()
        if "start" in present
    ]
    return min((time for time in found if time is not None), default=0)


def _changed(table: str, first: int, column: str, value: str) -> str:
    """SQL expression with shifted times and public texts for that of a column's value."""
    if table == "traceprobe" and column == "json":
        return f"anonymous_record({value})"
    if table in _METADATA:
        return value  # of known keys: versions and switches
    if table == COUNTERS and column == "metricName":
        return value  # of known counters
    if column in _TIMES:
        return f"CASE WHEN typeof({value}) = 'integer' THEN {value} - {first} ELSE NULL END"
    return (
        f"CASE typeof({value}) WHEN 'text' THEN anonymous(CAST({value} AS BLOB)) ELSE {value} END"
    )

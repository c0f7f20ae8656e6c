"""Slices of Nsight Systems exports: tables, columns, texts and strings by allow-lists."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.nsight.open_export import unpacked_export
from traceprobe.ingest.nsight.tables import encoding
from traceprobe.slicing.nsight_columns import FUNCTIONS, STRINGS, Value, public_rows, public_text
from traceprobe.slicing.nsight_columns import public_columns_of as allowed

if TYPE_CHECKING:
    from traceprobe.slicing.window import SlicePlan

_GPU = re.compile(r"CUPTI_ACTIVITY_KIND_(KERNEL|MEMCPY|MEMSET|GRAPH_TRACE)")


def write_nsight_slice(source: Path, target: Path, plan: SlicePlan) -> None:
    """Write the slice as a database of its own."""
    target.unlink()  # SQLite makes its own file
    with (
        unpacked_export(source, detect_format(source).gzipped) as file,
        attached(target, file) as db,
    ):
        _declare_windows(db, plan)
        columns = public_columns(db)
        for table, present in columns.items():
            copy(db, table, present, _rule(table, set(present)))
        _strings(db, columns)
        db.execute("CREATE TABLE main.traceprobe_slice (name TEXT, value TEXT)")
        db.executemany(
            "INSERT INTO main.traceprobe_slice VALUES (?, ?)",
            [
                (key, value if isinstance(value, str) else json.dumps(value))
                for key, value in plan.note.items()
            ],
        )
        db.execute("COMMIT")
        db.execute("DETACH source")
        db.execute("VACUUM")


@contextmanager
def attached(
    target: Path,
    source: Path,
    functions: Mapping[str, Callable[[str], Value]] = MappingProxyType({}),
) -> Iterator[sqlite3.Connection]:
    """A new database, inside a transaction; the other is attached as `source`, read-only.

    Args:
        functions: SQL functions of a text as a blob, which may be no valid text, beside FUNCTIONS.
    """
    with closing(
        sqlite3.connect(f"{target.resolve().as_uri()}", uri=True, isolation_level=None)
    ) as db:
        place = f"{source.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(place, uri=True)) as original:
            stored = encoding(original)
        db.execute(f"PRAGMA encoding = '{stored}'")  # databases that are attached share theirs
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA trusted_schema = OFF")
        for name, function in {**FUNCTIONS, **functions}.items():
            db.create_function(name, 1, _of_bytes(function, stored), deterministic=True)
        db.execute("ATTACH ? AS source", (place,))
        db.execute("BEGIN")
        yield db


def public_columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables of the source that are passed on, and of each the columns that are."""
    tables = [
        name
        for (name,) in db.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'")
        if isinstance(name, str) and allowed(name)
    ]
    found = {}
    for table in tables:
        present = [row[1] for row in db.execute(f'PRAGMA source.table_info("{table}")')]
        if kept := [column for column in present if column in allowed(table)]:
            found[table] = kept
    return found


def copy(
    db: sqlite3.Connection,
    table: str,
    columns: list[str],
    rule: str,
    change: Callable[[str, str], str] = lambda column, value: value,
) -> None:
    """A table with the columns and texts that are passed on.

    Args:
        rule: SQL condition on a row `t`. change: an expression of a column's value to another.
    """
    chosen = ", ".join(
        f'{change(column, _value(table, column, columns))} AS "{column}"' for column in columns
    )
    db.execute(
        f'CREATE TABLE main."{table}" AS SELECT {chosen} FROM source."{table}" t '
        f"WHERE ({rule}) AND ({public_rows(table, columns)})"
    )


def _value(table: str, column: str, columns: list[str]) -> str:
    """SQL expression of a column of a row `t`: numbers, and texts where they may be."""
    value = f't."{column}"'
    told = public_text(table, column, columns)
    other = f"WHEN typeof({value}) IN ('text', 'blob') THEN {told} " if told else ""
    return f"CASE WHEN typeof({value}) IN ('integer', 'real') THEN {value} {other}END"


def _of_bytes(function: Callable[[str], Value], stored: str) -> Callable[[bytes | None], Value]:
    return lambda value: None if value is None else function(value.decode(stored, "replace"))


def _declare_windows(db: sqlite3.Connection, plan: SlicePlan) -> None:
    """Temporary tables: the window of each process, and the correlation ids launched in it."""
    db.execute(
        "CREATE TEMP TABLE windows (pid INTEGER PRIMARY KEY, low INT, high INT, gpu_low INT, "
        "gpu_high INT)"
    )
    db.executemany(
        "INSERT INTO windows VALUES (?, ?, ?, ?, ?)",
        [(pid, w.low, w.high, w.gpu_low, w.gpu_high) for pid, w in plan.windows.items()],
    )
    db.execute(
        "CREATE TEMP TABLE launched (pid INT, id INT, kept INT, PRIMARY KEY (pid, id)) WITHOUT "
        "ROWID"
    )
    calls = plan.trace.host_calls.filter(plan.trace.host_calls["correlation"] > 0)
    db.executemany(
        "INSERT OR REPLACE INTO launched VALUES (?, ?, ?)",
        [
            (pid, correlation, plan.windows[pid].low <= t0 < plan.windows[pid].high)
            for pid, correlation, t0 in calls.select("pid", "correlation", "t0").rows()
            if pid in plan.windows
        ],
    )


def _rule(table: str, columns: set[str]) -> str:
    """SQL condition on a row `t` of a table."""
    owner = next((c for c in ("globalPid", "globalTid") if c in columns), None)
    # Exports without process ids hold one process, which then is the only window.
    pid = f"((t.{owner} >> 24) & 0xFFFFFF)" if owner else "(SELECT pid FROM windows)"
    if _GPU.fullmatch(table) and {"start", "correlationId"} <= columns:
        return (
            f"COALESCE((SELECT kept FROM launched l WHERE l.pid = {pid} AND l.id = "
            "t.correlationId), "
            "(SELECT t.start >= w.gpu_low AND t.start < w.gpu_high FROM windows w WHERE w.pid "
            f"= {pid}), 0)"
        )
    if table.startswith("NVTX") and "eventType" in columns:
        timed = _inside(pid)
        mine = f"{pid} IN (SELECT pid FROM windows)"
        return f"(t.eventType NOT IN (34, 59, 60, 70, 71) AND {mine}) OR {timed}"
    if "start" in columns and owner:
        return _inside(pid)
    if table in ("PROCESSES", "ThreadNames"):
        return f"{pid} IN (SELECT pid FROM windows)"
    return "1"


def _inside(pid: str) -> str:
    within = "t.start >= w.low AND t.start < w.high"
    return f"EXISTS (SELECT 1 FROM windows w WHERE w.pid = {pid} AND {within})"


def _strings(db: sqlite3.Connection, columns: Mapping[str, list[str]]) -> None:
    """Only the strings that a kept row refers to."""
    used = used_strings(columns)
    if not used or not has_strings(db):
        return
    db.execute("CREATE TABLE main.StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.execute(
        "INSERT OR IGNORE INTO main.StringIds SELECT id, value FROM source.StringIds "
        f"WHERE id IN ({used})"
    )


def has_strings(db: sqlite3.Connection) -> bool:
    """Whether the source has a table of strings."""
    found = db.execute(
        "SELECT 1 FROM source.sqlite_master WHERE type = 'table' AND name = 'StringIds'"
    )
    return found.fetchone() is not None


def used_strings(columns: Mapping[str, list[str]]) -> str:
    """SQL of the ids of all strings that a row of the new tables refers to; empty for none."""
    return " UNION ".join(
        f'SELECT "{column}" FROM main."{table}"'
        for table, present in columns.items()
        for column in present
        if column in STRINGS
    )

"""Slices of Nsight Systems exports: tables, metadata and strings by allow-lists."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.ingest.nsight import plain
from traceprobe.ingest.sniff import recognise
from traceprobe.slicing.record import public_record

if TYPE_CHECKING:
    from traceprobe.slicing import Cut

TABLES = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|NVTXT?_(EVENTS|PAYLOAD_\w+)|PROFILER_OVERHEAD|CUDA_GRAPH_\w+|ENUM_\w+"
    r"|TARGET_INFO_(GPU|CUDA_\w+|SESSION_START_TIME)|ANALYSIS_DETAILS|PROCESSES|ThreadNames"
    r"|DIAGNOSTIC_EVENT|META_DATA_EXPORT|EXPORT_META_DATA|traceprobe"
)
# Not every parameter of the export: some hold the names of its files.
_METADATA = re.compile(
    r"EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH)\w*|EXPORT_(PARAM|CONFIG)_(TIME|TABLES|LAZY)\w*"
)
_GPU = re.compile(r"CUPTI_ACTIVITY_KIND_(KERNEL|MEMCPY|MEMSET|GRAPH_TRACE)")
_STRING_COLUMN = re.compile(r"^\s*\"?(\w+)\"?\s.*REFERENCES StringIds\(id\)", re.MULTILINE)
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s'\"]+")
_STRING_NAMES = {
    *("nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName"),
}


def write(source: Path, target: Path, plan: Cut) -> None:
    """Write the slice as a database of its own."""
    target.unlink()  # SQLite makes its own file
    with plain(source, recognise(source).gzipped) as file, attached(target, file) as db:
        _declare_windows(db, plan)
        ddl = {
            name: sql
            for name, sql in db.execute(
                "SELECT name, sql FROM source.sqlite_master WHERE type = 'table' AND sql IS "
                "NOT NULL"
            )
            if TABLES.fullmatch(name)
        }
        columns = {n: [r[1] for r in db.execute(f'PRAGMA source.table_info("{n}")')] for n in ddl}
        for name, sql in ddl.items():
            db.execute(sql)
            rule = _rule(name, set(columns[name]))
            db.execute(f'INSERT INTO main."{name}" SELECT * FROM source."{name}" t WHERE {rule}')
        if "uuid" in columns.get("TARGET_INFO_GPU", []):  # the serial identity of the board
            db.execute("UPDATE main.TARGET_INFO_GPU SET uuid = NULL")
        if {"rank", "json"} <= set(columns.get("traceprobe", [])):
            db.execute("UPDATE main.traceprobe SET json = record(json)")
        if "text" in columns.get("DIAGNOSTIC_EVENT", []):
            db.execute("UPDATE main.DIAGNOSTIC_EVENT SET text = without_folders(text)")
        if "name" in columns.get("PROCESSES", []):
            db.execute("UPDATE main.PROCESSES SET name = base(name)")
        _strings(db, ddl, columns)
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


def record(text: object) -> str:
    """What the capture of traceprobe left in an export, as public as it gets."""
    try:
        return json.dumps(public_record(json.loads(str(text))), sort_keys=True)
    except ValueError:
        return "{}"


@contextmanager
def attached(target: Path, source: Path) -> Iterator[sqlite3.Connection]:
    """A new database, inside a transaction; the other is attached as `source`, read-only."""
    with closing(
        sqlite3.connect(f"{target.resolve().as_uri()}", uri=True, isolation_level=None)
    ) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA trusted_schema = OFF")
        db.create_function("public", 1, lambda key: bool(_METADATA.fullmatch(str(key))))
        db.create_function("record", 1, record)
        db.create_function("without_folders", 1, lambda text: text and _PATH.sub("…", str(text)))
        db.create_function("base", 1, lambda name: name and str(name).rsplit("/", 1)[-1])
        db.execute("ATTACH ? AS source", (f"{source.resolve().as_uri()}?mode=ro&immutable=1",))
        db.execute("BEGIN")
        yield db


def _declare_windows(db: sqlite3.Connection, plan: Cut) -> None:
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
    if table == "DIAGNOSTIC_EVENT":
        return "t.text NOT LIKE '%/%'"
    return "public(t.name)" if table in ("META_DATA_EXPORT", "EXPORT_META_DATA") else "1"


def _inside(pid: str) -> str:
    within = "t.start >= w.low AND t.start < w.high"
    return f"EXISTS (SELECT 1 FROM windows w WHERE w.pid = {pid} AND {within})"


def _strings(db: sqlite3.Connection, ddl: dict[str, str], columns: dict[str, list[str]]) -> None:
    """Only the strings that a kept row refers to."""
    found = db.execute("SELECT sql FROM source.sqlite_master WHERE name = 'StringIds'").fetchone()
    if found is None:
        return
    db.execute(found[0])
    used = used_strings(ddl, columns)
    if used:
        db.execute(
            f"INSERT INTO main.StringIds SELECT * FROM source.StringIds WHERE id IN ({used})"
        )


def used_strings(ddl: dict[str, str], columns: dict[str, list[str]]) -> str:
    """SQL of the ids of all strings that a row of the new tables refers to; empty for none."""
    return " UNION ".join(
        f'SELECT "{column}" FROM main."{name}"'
        for name, sql in ddl.items()
        for column in sorted(({*_STRING_COLUMN.findall(sql)} | _STRING_NAMES) & {*columns[name]})
    )

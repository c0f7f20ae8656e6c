"""Copy a Nsight Systems SQLite export without what must not be published.

    python scripts/clean_nsight.py report.sqlite sample_traces/name.sqlite.gz

An export holds the environment, the command line and the folders of the profiled process, and the
names of every thread on the machine. The copy keeps every table that an analysis reads, row by row
and with its schema, and nothing else: tables, metadata and diagnostics are chosen by allow-lists,
and only strings that a kept row refers to survive. The result depends on the input alone.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import sys
import tempfile
from pathlib import Path

TABLES = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|NVTX_(EVENTS|PAYLOAD_\w+)|PROFILER_OVERHEAD|CUDA_GRAPH_\w+|ENUM_\w+"
    r"|TARGET_INFO_(GPU|CUDA_\w+|SESSION_START_TIME)|ANALYSIS_DETAILS|PROCESSES|ThreadNames"
    r"|DIAGNOSTIC_EVENT|META_DATA_(CAPTURE|EXPORT)"
)
METADATA = re.compile(
    r"CAPTURE_EVENT_TYPE|PROCESS_\d+:(COLLECT|CUDA)_\w+(:\w+)?"
    r"|EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|PARAM|CONFIG|TIME)\w*"
)
STRING_COLUMN = re.compile(r"^\s*(\w+)\s.*REFERENCES StringIds\(id\)", re.MULTILINE)
PID_MASK = ~0xFFFFFF
"""A serialised id holds the process in its upper and the thread in its lower 24 bits."""


def tables(db: sqlite3.Connection) -> dict[str, str]:
    """Name to DDL of the tables to keep, in the order of the file."""
    found = db.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'")
    return {name: sql for name, sql in found if TABLES.fullmatch(name)}


def string_columns(ddl: str) -> list[str]:
    """Columns that refer to StringIds; one of them is not declared as such."""
    return STRING_COLUMN.findall(ddl) + re.findall(r"\bjsonTextId\b", ddl)


def restrict(db: sqlite3.Connection, names: dict[str, str]) -> None:
    """Drop rows about other processes, the machine and the command line."""
    owner = {"CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid", "CUPTI_ACTIVITY_KIND_KERNEL": "globalPid"}
    profiled = {
        gid & PID_MASK
        for table, column in owner.items()
        if table in names
        for (gid,) in db.execute(f"SELECT DISTINCT {column} FROM {table}")
    }
    db.create_function("profiled", 1, lambda gid: gid & PID_MASK in profiled, deterministic=True)
    db.create_function("public", 1, lambda key: bool(METADATA.fullmatch(key)), deterministic=True)
    rules = {
        "PROCESSES": "profiled(globalPid)",
        "ThreadNames": "profiled(globalTid)",
        "DIAGNOSTIC_EVENT": "text NOT LIKE '%/%'",
        "META_DATA_CAPTURE": "public(name)",
        "META_DATA_EXPORT": "public(name)",
    }
    for table, rule in rules.items():
        if table in names:
            db.execute(f"DELETE FROM {table} WHERE NOT ({rule})")
    if (
        "TARGET_INFO_GPU" in names
    ):  # the serial identity of the board; distinct per GPU all the same
        db.execute("UPDATE TARGET_INFO_GPU SET uuid = printf('00000000-0000-0000-0000-%012d', id)")


def copy(source: Path, target: Path) -> None:
    """Write the cleaned database to `target`, which must not exist."""
    db = sqlite3.connect(f"file:{target}", uri=True, isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("ATTACH ? AS source", (f"file:{source}?mode=ro",))
    db.execute("BEGIN")
    names = tables(db)
    for name, ddl in names.items():
        db.execute(ddl)
        db.execute(f"INSERT INTO main.{name} SELECT * FROM source.{name} ORDER BY rowid")
    restrict(db, names)
    (strings,) = db.execute(
        "SELECT sql FROM source.sqlite_master WHERE name = 'StringIds'"
    ).fetchone()
    db.execute(strings)
    used = " UNION ".join(
        f"SELECT {column} FROM main.{name}"
        for name, ddl in names.items()
        for column in string_columns(ddl)
    )
    db.execute(
        "INSERT INTO main.StringIds "
        f"SELECT * FROM source.StringIds WHERE id IN ({used}) ORDER BY id"
    )
    db.execute("COMMIT")
    db.execute("DETACH source")
    db.execute("VACUUM")
    db.close()


def main(source: str, target: str) -> None:
    """Clean one file, plain or gzipped, into a gzipped one."""
    with tempfile.TemporaryDirectory() as folder:
        plain, cleaned = Path(folder, "source.sqlite"), Path(folder, "cleaned.sqlite")
        data = Path(source).read_bytes()
        plain.write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        copy(plain, cleaned)
        Path(target).write_bytes(gzip.compress(cleaned.read_bytes(), 9, mtime=0))
    print(f"{target}: {Path(target).stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])

"""Nsight Systems exports without private names: the tables of a slice, every text replaced."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from traceprobe import __version__
from traceprobe.anonymous.kineto import without_names
from traceprobe.anonymous.names import public
from traceprobe.ingest.nsight import plain
from traceprobe.ingest.sniff import recognise
from traceprobe.slicing.nsight import TABLES, attached, record, used_strings

_LEFT_OUT = ("TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS")
"""Tables that say when the capture was, and nothing that is read."""
_METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_TIMES = ("start", "end", "timestamp")
_LIBRARIES = "nccl*"
"""Whose payloads of ranges stay: they are numbers by a known layout."""


def write(source: Path, target: Path) -> None:
    """Write the copy as a database of its own."""
    target.unlink()  # SQLite makes its own file
    with plain(source, recognise(source).gzipped) as file, attached(target, file) as db:
        db.create_function("anonymous", 1, _text, deterministic=True)
        db.create_function("anonymous_record", 1, _record, deterministic=True)
        ddl = {
            name: sql
            for name, sql in db.execute(
                "SELECT name, sql FROM source.sqlite_master WHERE type = 'table' AND sql IS "
                "NOT NULL"
            )
            if TABLES.fullmatch(name) and name not in _LEFT_OUT
        }
        columns = {n: [r[1] for r in db.execute(f'PRAGMA source.table_info("{n}")')] for n in ddl}
        first = _first(db, columns)
        for name in ddl:
            _copy(db, name, columns[name], first)
        used = used_strings(ddl, columns)
        tables = [n for (n,) in db.execute("SELECT name FROM source.sqlite_master")]
        if used and "StringIds" in tables:
            db.execute("CREATE TABLE main.StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            text = "anonymous(CAST(value AS BLOB))"
            db.execute(
                f"INSERT OR IGNORE INTO main.StringIds SELECT id, {text} FROM source.StringIds "
                f"WHERE id IN ({used})"
            )
        db.execute("CREATE TABLE main.traceprobe_anonymised (version TEXT)")
        db.execute("INSERT INTO main.traceprobe_anonymised VALUES (?)", [__version__])
        db.execute("COMMIT")
        db.execute("DETACH source")
        db.execute("VACUUM")


def _text(value: bytes | None) -> str | None:
    """A text, which may be no UTF-8."""
    return None if value is None else public(value.decode("utf-8", "replace"))


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _record(text: object) -> str:
    """What the capture of traceprobe left, without what others may have added."""
    known = json.loads(record(text))
    return json.dumps({k: without_names(v) for k, v in known.items()}, sort_keys=True)


def _first(db: sqlite3.Connection, columns: dict[str, list[str]]) -> int:
    """The earliest time of the kept tables, ns."""
    known = "typeof(start) = 'integer' AND start > 0"
    found = [
        db.execute(f'SELECT min(start) FROM source."{name}" WHERE {known}').fetchone()[0]
        for name, present in columns.items()
        if "start" in present
    ]
    return min((time for time in found if time is not None), default=0)


def _copy(db: sqlite3.Connection, name: str, columns: Sequence[str], first: int) -> None:
    """A table with shifted times and public texts."""
    chosen = ", ".join(
        f'{_value(name, column, columns, first)} AS "{column}"' for column in columns
    )
    where = ""
    if name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        where = "WHERE public(t.name)"
    db.execute(f'CREATE TABLE main."{name}" AS SELECT {chosen} FROM source."{name}" t {where}')


def _value(table: str, column: str, columns: Sequence[str], first: int) -> str:
    """SQL expression of a column of a row `t`."""
    value = f"t.{_quoted(column)}"
    if table == "traceprobe" and column == "json":
        return f"anonymous_record({value})"
    if table in _METADATA:
        return value  # of known keys: versions and switches
    if column == "uuid":  # the serial identity of a board
        return "NULL"
    if column in _TIMES:
        return f"CASE WHEN typeof({value}) = 'integer' THEN {value} - {first} ELSE NULL END"
    return (
        f"CASE typeof({value}) WHEN 'text' THEN anonymous(CAST({value} AS BLOB)) "
        f"WHEN 'blob' THEN {_blob(value, columns)} ELSE {value} END"
    )


def _blob(value: str, columns: Sequence[str]) -> str:
    """The payload of a range, if it is one of a library whose payloads are numbers."""
    names = []
    if "text" in columns:
        names.append(f"t.text GLOB '{_LIBRARIES}'")
    if "textId" in columns:
        names.append(
            f"t.textId IN (SELECT id FROM source.StringIds WHERE value GLOB '{_LIBRARIES}')"
        )
    return f"CASE WHEN {' OR '.join(names)} THEN {value} ELSE NULL END" if names else "NULL"

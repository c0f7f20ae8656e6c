"""Copying an Nsight Systems export table by table, with what may be passed on of each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType

from traceprobe.ingest.detect_format import detect_format
from traceprobe.ingest.nsight.open_export import unpacked_export
from traceprobe.ingest.nsight.tables import encoding
from traceprobe.slicing.nsight_columns import (
    COLUMNS,
    FUNCTIONS,
    STRINGS,
    Value,
    public_rows,
    public_text,
)


@contextmanager
def new_export(
    source: Path,
    target: Path,
    functions: Mapping[str, Callable[[str], Value]] = MappingProxyType({}),
) -> Iterator[sqlite3.Connection]:
    """A database in place of the target, inside a transaction that ends with the block.

    The source is attached as `source`, read-only.

    Args:
        functions: SQL functions of a text as a blob, which may be no valid text, beside FUNCTIONS.

    Raises:
        DamagedInput: nothing of a gzipped source can be unpacked.
    """
    target.unlink()  # SQLite makes its own file
    with (
        unpacked_export(source, detect_format(source).gzipped) as export,
        closing(sqlite3.connect(target.resolve().as_uri(), uri=True, isolation_level=None)) as db,
    ):
        location = f"{export.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(location, uri=True)) as original:
            stored = encoding(original)
        db.execute(f"PRAGMA encoding = '{stored}'")  # databases that are attached share theirs
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA trusted_schema = OFF")
        for name, function in {**FUNCTIONS, **functions}.items():
            db.create_function(name, 1, _of_bytes(function, stored), deterministic=True)
        db.execute("ATTACH ? AS source", (location,))
        db.execute("BEGIN")
        yield db
        db.execute("COMMIT")
        db.execute("DETACH source")
        db.execute("VACUUM")


def public_columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables of the source that are passed on, and of each the columns that are."""
    tables = db.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'").fetchall()
    columns = {}
    for (table,) in tables:
        if table in COLUMNS:
            present = [row[1] for row in db.execute(f'PRAGMA source.table_info("{table}")')]
            if kept := [column for column in present if column in COLUMNS[table]]:
                columns[table] = kept
    return columns


_TYPES = {name: name for name in ("INTEGER", "TEXT", "REAL", "BLOB")}
"""Types that columns of a copy may have; any other text of a file may be anything."""


def copy_table(
    db: sqlite3.Connection,
    table: str,
    columns: list[str],
    condition: str = "1",
    change: Callable[[str, str], str] = lambda column, value: value,
) -> None:
    """Copy a table with the columns and texts that are passed on, and their types.

    Tools that read an export by SQL of their own sort and subtract by declared types.

    Args:
        condition: SQL condition on a row `t`.
        change: from a column and the SQL expression of its value to another expression.
    """
    chosen = ", ".join(
        f'{change(column, _value(table, column, columns))} AS "{column}"' for column in columns
    )
    types = {row[1]: row[2] for row in db.execute(f'PRAGMA source.table_info("{table}")')}
    declared = ", ".join(f'"{column}" {_TYPES.get(types[column], "")}' for column in columns)
    db.execute(f'CREATE TABLE main."{table}" ({declared})')
    db.execute(
        f'INSERT INTO main."{table}" SELECT {chosen} FROM source."{table}" t '
        f"WHERE ({condition}) AND ({public_rows(table, columns)})"
    )


def copy_strings(
    db: sqlite3.Connection, columns: Mapping[str, list[str]], value: str = "value"
) -> None:
    """Copy the strings that a row of the new tables refers to, and no other.

    Args:
        columns: of the new tables.
        value: SQL expression of the text to store.
    """
    used = " UNION ".join(
        f'SELECT "{column}" FROM main."{table}"'
        for table, present in columns.items()
        for column in present
        if column in STRINGS
    )
    has_strings = "SELECT 1 FROM source.sqlite_master WHERE type = 'table' AND name = 'StringIds'"
    if not used or db.execute(has_strings).fetchone() is None:
        return
    db.execute("CREATE TABLE main.StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    db.execute(
        f"INSERT OR IGNORE INTO main.StringIds SELECT id, {value} FROM source.StringIds "
        f"WHERE id IN ({used})"
    )


def _value(table: str, column: str, columns: list[str]) -> str:
    """SQL expression of a column of a row `t`: numbers, and texts where they may be."""
    value = f't."{column}"'
    text = public_text(table, column, columns)
    other = f"WHEN typeof({value}) IN ('text', 'blob') THEN {text} " if text else ""
    return f"CASE WHEN typeof({value}) IN ('integer', 'real') THEN {value} {other}END"


def _of_bytes(function: Callable[[str], Value], stored: str) -> Callable[[bytes | None], Value]:
    return lambda value: None if value is None else function(value.decode(stored, "replace"))

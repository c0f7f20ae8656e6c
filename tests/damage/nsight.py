"""Damage to Nsight exports: tables, columns and rows missing, renamed, of other types."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from random import Random

from tests.builders.nsight_schema import KERNEL, MEMCPY, RUNTIME
from tests.damage.bytewise import ANY, Damage

TABLES = (KERNEL, MEMCPY, RUNTIME, "StringIds", "NVTX_EVENTS", "TARGET_INFO_GPU", "ThreadNames")
COLUMNS = (
    *((KERNEL, name) for name in ("start", "end", "deviceId", "streamId", "correlationId")),
    *((KERNEL, name) for name in ("globalPid", "demangledName", "shortName")),
    *((RUNTIME, name) for name in ("start", "end", "globalTid", "correlationId", "nameId")),
    *((MEMCPY, name) for name in ("bytes", "copyKind", "srcKind")),
    *(("NVTX_EVENTS", name) for name in ("start", "end", "eventType", "globalTid", "text")),
    *(("StringIds", name) for name in ("id", "value")),
)


def _sql(*statements: str) -> Damage:
    """Statements one by one; what a file has no table for is left out."""

    def damage(data: bytes, random: Random) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            for statement in statements:
                with suppress(sqlite3.Error):
                    database.execute(statement)
            database.commit()
            return database.serialize()

    return damage


def _loose(table: str) -> tuple[str, ...]:
    """The table again, with columns that take any type."""
    return (
        f"CREATE TABLE loose AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE loose RENAME TO {table}",
    )


def _cells(table: str, column: str, value: str, every: int) -> Damage:
    update = f"UPDATE {table} SET {column} = {value} WHERE rowid % {every} = 0"
    return _sql(*_loose(table), update)


def _header(at: int, value: bytes) -> Damage:
    """Other bytes in the header of the file."""
    return lambda data, random: data[:at] + value + data[at + len(value) :]


def _schema(data: bytes, random: Random) -> bytes:
    """Bytes of the schema that are noise."""
    changed = bytearray(data)
    for _ in range(20):
        changed[random.randrange(100, min(4096, len(changed)))] = random.randrange(256)
    return bytes(changed)


DAMAGE: dict[str, Damage] = {
    **ANY,
    **{f"no-{table}": _sql(f"DROP TABLE {table}") for table in TABLES},
    **{f"empty-{table}": _sql(f"DELETE FROM {table}") for table in TABLES[:4]},
    **{
        f"no-{table}.{column}": _sql(
            f"ALTER TABLE {table} RENAME TO old",
            *_loose("old")[:1],
            f"ALTER TABLE loose DROP COLUMN {column}",
            "DROP TABLE old",
            f"ALTER TABLE loose RENAME TO {table}",
        )
        for table, column in COLUMNS
    },
    **{f"null-{table}.{column}": _cells(table, column, "NULL", 3) for table, column in COLUMNS},
    **{f"text-{t}.{c}": _cells(t, c, "'not a number'", 5) for t, c in COLUMNS},
    **{f"blob-{t}.{c}": _cells(t, c, "zeroblob(9)", 7) for t, c in COLUMNS},
    **{f"huge-{t}.{c}": _cells(t, c, "9.2e18", 11) for t, c in COLUMNS},
    **{
        f"view-{t}": _sql(f"ALTER TABLE {t} RENAME TO old", f"CREATE VIEW {t} AS SELECT * FROM old")
        for t in TABLES
    },
    "renamed": _sql(f"ALTER TABLE {KERNEL} RENAME TO KERNELS"),
    "broken-view": _sql(f"DROP TABLE {RUNTIME}", f"CREATE VIEW {RUNTIME} AS SELECT * FROM gone"),
    "endless-view": _sql(
        f"DROP TABLE {RUNTIME}",
        f"CREATE VIEW {RUNTIME} AS WITH RECURSIVE c(start) AS (SELECT 1 UNION ALL SELECT start + 1 "
        "FROM c) SELECT start, start AS end FROM c",
    ),
    "cross-view": _sql(
        f"ALTER TABLE {RUNTIME} RENAME TO old",
        f"CREATE VIEW {RUNTIME} AS SELECT a.* FROM old a, old b, old c",
    ),
    "backward": _sql(f"UPDATE {KERNEL} SET end = start - 1 WHERE rowid % 2 = 0"),
    "twice": _sql(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}"),
    "devices": _sql(f"UPDATE {KERNEL} SET deviceId = rowid % 9"),
    "streams": _sql(f"UPDATE {KERNEL} SET streamId = rowid % 999"),
    "no-rowid": _sql(
        "CREATE TABLE w (start INT PRIMARY KEY, end INT, correlationId INT) WITHOUT ROWID",
        f"INSERT OR IGNORE INTO w SELECT start, end, correlationId FROM {KERNEL}",
        f"DROP TABLE {KERNEL}",
        f"ALTER TABLE w RENAME TO {KERNEL}",
    ),
    "wal-header": _header(18, b"\2\2"),
    "page-size": _header(16, b"\2\0"),
    "reserved": _header(20, b"\xff"),
    "encoding": _header(56, b"\0\0\0\2"),
    "schema": _schema,
}
"""Name to damage of an export."""

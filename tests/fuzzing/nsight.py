"""Damage to Nsight exports: to their cells, rows, columns and tables, and to their pages."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing, suppress
from random import Random

from tests.fuzzing.values import nasty, scramble

ROWS = 150
"""At most so many rows of a table are kept."""
CELLS = (type(None), int, float, str, bytes)


def mutate(data: bytes, random: Random) -> bytes:
    """Some damage to an export, plain or gzipped; the same for the same state of `random`."""
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.deserialize(plain)
            tables = _tables(database)
        except sqlite3.Error:
            return scramble(plain, random)
        for table in tables:
            _excerpt(database, table, ROWS, random)
        for _ in range(random.choice([0, 1, 1, 2, 5, 20])):
            # IndexError: there is no table left.
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError, IndexError):
                random.choice([_cell, _cell, _cell, _rows, _column, _table])(database, random)
        database.commit()
        with suppress(sqlite3.Error):
            database.execute("VACUUM")
        found = database.serialize()
    if random.random() < 0.25:
        found = scramble(found, random)
    if random.random() < 0.1:
        found = gzip.compress(found, compresslevel=1, mtime=0)
        if random.random() < 0.5:
            found = scramble(found, random)
    return found


def _tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def thin(data: bytes) -> bytes:
    """An export with so few rows that many damaged ones can be made of it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data)
        for table in _tables(database):
            _excerpt(database, table, 10 * ROWS, Random(0))
        (strings,) = database.execute("SELECT max(rowid) FROM StringIds").fetchone()
        database.execute(f"DELETE FROM StringIds WHERE rowid < {strings or 0} - 5000")
        database.commit()
        database.execute("VACUUM")
        return database.serialize()


def _excerpt(database: sqlite3.Connection, table: str, rows: int, random: Random) -> None:
    """Keep rows next to each other; texts are kept, as the others refer to them."""
    if table == "StringIds":
        return
    with suppress(sqlite3.Error):
        (count,) = database.execute(f"SELECT max(rowid) FROM {_quote(table)}").fetchone()
        if count and count > rows:
            at = random.randrange(count - rows + 1)
            database.execute(
                f"DELETE FROM {_quote(table)} WHERE rowid <= {at} OR rowid > {at + rows}"
            )


def _some(database: sqlite3.Connection, random: Random) -> tuple[str, str]:
    table = random.choice(_tables(database))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({_quote(table)})")]
    return _quote(table), _quote(random.choice(columns))


def _cell(database: sqlite3.Connection, random: Random) -> None:
    table, column = _some(database, random)
    value = nasty(random)
    value = value if isinstance(value, CELLS) else str(value)
    which = random.choice(
        [
            f"rowid = (SELECT rowid FROM {table} LIMIT 1)",
            "1",
            "rowid % 3 = 0",
            "abs(random()) % 5 = 0",
        ]
    )
    if which.startswith("abs"):  # SQLite's random numbers are not ours to repeat
        which = f"rowid % 7 = {random.randrange(7)}"
    database.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {which}", [value])


def _rows(database: sqlite3.Connection, random: Random) -> None:
    table, column = _some(database, random)
    how = random.randrange(3)
    if how == 0:
        database.execute(f"DELETE FROM {table} WHERE rowid % 3 = {random.randrange(3)}")
    elif how == 1:
        database.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 40")
    else:
        scale = random.choice(["-1", "0", "1000000", "1e15", "NULL"])
        database.execute(f"UPDATE {table} SET {column} = {column} * {scale}")


def _column(database: sqlite3.Connection, random: Random) -> None:
    table, column = _some(database, random)
    if random.random() < 0.6:
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    else:
        database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")


def _table(database: sqlite3.Connection, random: Random) -> None:
    table, column = _some(database, random)
    how = random.randrange(8)
    if how == 0:
        database.execute(f"DROP TABLE {table}")
    elif how == 6:
        database.execute(f"ALTER TABLE {table} RENAME TO kept")
        database.execute(
            f"CREATE VIEW {table} AS SELECT *, (SELECT group_concat({column}) FROM kept) AS value "
            "FROM kept"
        )
    elif how == 7:
        database.execute(f"ALTER TABLE {table} ADD COLUMN more AS ({column} || {column})")
    elif how == 1:
        database.execute(f"DELETE FROM {table}")
    elif how == 2:
        database.execute(f"ALTER TABLE {table} RENAME TO kept")
        database.execute(f"CREATE VIEW {table} AS SELECT * FROM kept")
    elif how == 3:
        database.execute(
            f"CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN DELETE FROM StringIds; END"
        )
    elif how == 4:
        database.execute(f"DROP TABLE {table}")
        database.execute(
            f"CREATE VIEW {table} AS WITH RECURSIVE c(start) AS "
            "(SELECT 1 UNION ALL SELECT start + 1 FROM c) SELECT start, start AS end FROM c"
        )
    else:
        database.execute(f"UPDATE {table} SET {column} = zeroblob(100000) WHERE rowid % 50 = 1")

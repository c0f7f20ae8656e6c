"""A table with damaged pages, copied as far as it can be read.

SQLite gives up a query at the first page that makes no sense, although the rest of the table is a
step away: row numbers lead to it without the pages between.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What a query of a damaged file raises: Python cannot even read some of SQLite's complaints."""
Spend = Callable[[Iterable[object]], None]
_OURS = re.compile(
    "interrupted|not authorized.*|access to .* is prohibited"
    "|user-defined function raised exception",
    re.DOTALL,
)
"""What SQLite says of a query that a function of ours ended."""
_FARTHEST = 1 << 40
"""Row numbers that are tried behind damage; tables number their rows from 1."""
_MOST_GAPS = 10_000


def copy_readable_rows(
    source: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    spend: Spend,
    *,
    encoding: str,
    numbered: bool,
) -> tuple[sqlite3.Connection, int]:
    """The readable rows of a table in a database of its own.

    A value that lies on a damaged page is NULL, where the rest of its row is not.

    Args:
        table: quoted, as are the columns. numbered: the rows have numbers of SQLite's own.
        spend: called with each row that is read; what it raises ends the copy.
        encoding: how texts are stored in the copy.

    Returns:
        A connection on which the table has the same name, and the number of rows that are missing
        at least, as far as row numbers tell.
    """
    target = sqlite3.connect("")  # on disk, and gone when closed
    target.execute(f"PRAGMA encoding = '{encoding}'")
    target.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    if numbered:
        missing = _Copy(source, target, table, columns, spend).run()
    else:
        rows = _Rows(source, f"SELECT {', '.join(columns)} FROM {table}", spend)
        target.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        missing = int(rows.damaged)
    target.commit()
    return target, missing


class _Rows(msgspec.Struct):
    """Rows of a query up to the first that cannot be read; `damaged` says that there was one."""

    source: sqlite3.Connection
    query: str
    spend: Spend
    parameters: tuple[int, ...] = ()
    damaged: bool = False

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self.source.execute(self.query, self.parameters):
                self.spend(row)
                yield row
        except DAMAGE as error:
            if interrupted(error):
                raise
            self.damaged = True


class _Copy:
    """Copies rows in the order of their numbers, from one damaged stretch to the next."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        table: str,
        columns: Sequence[str],
        spend: Spend,
    ) -> None:
        self._spend = spend
        self._source, self._target, self._table, self._columns = source, target, table, columns
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self._select = f"SELECT rowid, {names} FROM {table} WHERE rowid > ? ORDER BY rowid"
        self._insert = f"INSERT OR REPLACE INTO {table} (rowid, {names}) VALUES (?, {marks})"
        self._last = -1 << 62
        self._missing = 0

    def run(self) -> int:
        """Number of rows that are missing, after all others are copied."""
        for _ in range(_MOST_GAPS):
            if self._to_next_damage():
                return self._missing
            if not self._row_without_values() and not self._over_damage():
                return self._missing + 1  # nothing behind it can be read
        return self._missing + 1

    def _to_next_damage(self) -> bool:
        """Copy until a row cannot be read; whether there was none such."""
        rows = _Rows(self._source, self._select, self._spend, (self._last,))
        for row in rows:
            if row[0] <= self._last:  # pages that lead back to themselves
                return False
            self._target.execute(self._insert, row)
            self._last = row[0]
        return not rows.damaged

    def _row_without_values(self) -> bool:
        """Copy the next row value by value: its number may be readable, and some of the rest."""
        number = self._value(f"SELECT rowid FROM {self._table} WHERE rowid > ? LIMIT 1", self._last)
        if not isinstance(number, int) or number <= self._last:
            return False
        values = [
            self._value(f"SELECT {column} FROM {self._table} WHERE rowid = ?", number)
            for column in self._columns
        ]
        if all(value is None for value in values):
            return False
        self._target.execute(self._insert, (number, *values))
        self._last = number
        return True

    def _value(self, query: str, number: int) -> object:
        row = next(iter(_Rows(self._source, query, self._spend, (number,))), None)
        return None if row is None else row[0]

    def _over_damage(self) -> bool:
        """Go on before the first row behind the damage; False where there is none."""
        first = max(self._last, 0)
        step = 1
        while not self._readable(first + step):
            step *= 2
            if step > _FARTHEST:
                return False
        low, high = first + step // 2, first + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._readable(middle) else (middle, high)
        self._missing += high - first
        self._last = high
        return True

    def _readable(self, after: int) -> bool:
        """Whether the next row behind this number can be read, or there is none."""
        rows = _Rows(self._source, f"{self._select} LIMIT 1", self._spend, (after,))
        for _ in rows:
            pass
        return not rows.damaged


def interrupted(error: Exception) -> bool:
    """Whether a function of ours ended a query, which says nothing of the file.

    It took too long, or Ctrl-C was pressed while SQLite called us: that arrives as an error of the
    query, made by the authorizer a denial.
    """
    return _OURS.fullmatch(str(error)) is not None

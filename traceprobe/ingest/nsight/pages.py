"""Columns of integers of a table, read in pages of so many rows with SQLite.

SQLite writes the numbers of a column in a row, as one text, and numpy reads them back: to make a
Python object of each takes three times as long. Both leave Python's lock to others, so that pages
are computed ahead, each on a thread and a connection of its own, while those before are used.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from traceprobe.ingest.joins import Table, narrow_table
from traceprobe.ingest.nsight.damaged_pages import DAMAGE
from traceprobe.ingest.nsight.nvtx_texts import SEPARATOR

ROWS = 100_000
"""Of a page."""
_MOST_AHEAD = 16
"""Pages of numbers of a table that are computed before they are asked for: they take little, since
each column is as narrow as it can be. Of those with texts, one more than there are threads."""
_MOST_PAGES = 10_000
"""Of numbers that are taken to lie close together; a page without a row takes no time."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_Span = tuple[int, int]
"""The first and the last row number of a page."""


class Query(NamedTuple):
    """What is read of a table.

    Args:
        table: quoted. select: SQL of each column. condition: SQL that chooses rows, or nothing.
        text: SQL of texts that come with the columns, those of a page as one.
    """

    table: str
    select: Mapping[str, str]
    condition: str
    text: str = ""

    def source(self) -> str:
        """The rows by their numbers: a subquery with a limit would hand on every row."""
        return f"FROM {self.table} NOT INDEXED WHERE rowid"

    def of_page(self) -> str:
        """The number of rows of a page, its columns and its texts; of a first and a last row."""
        values = [f"group_concat({value})" for value in self.select.values()]
        if self.text:
            values.append(f"group_concat({self.text}, '{SEPARATOR}')")
        columns = ", ".join(["count(*) AS rows", *values])
        chosen = f" AND ({self.condition})" if self.condition else ""
        return f"SELECT {columns} {self.source()} BETWEEN ? AND ?{chosen}"


class Page(NamedTuple):
    """Columns of some rows, and their texts in one."""

    columns: Table
    texts: str


class Readers:
    """Threads that compute pages, each on a connection of its own, in the order of the asking.

    Args:
        connections: as many as there will be threads. They are used until `close`.
    """

    def __init__(self, connections: Sequence[sqlite3.Connection]) -> None:
        self.count = len(connections)
        self._connections = connections
        self._pool = ThreadPoolExecutor(len(connections))
        self._free: SimpleQueue[sqlite3.Connection | None] = SimpleQueue()
        for connection in connections:
            self._free.put(connection)

    def submitted(self, query: Query, spans: Iterable[_Span]) -> Iterator[Future[Page | None]]:
        """The pages to come; one whose rows cannot be found comes as that error."""
        sql = query.of_page()
        try:
            for span in spans:
                yield self._pool.submit(self._computed, query, sql, span)
        except DAMAGE as error:
            lost: Future[Page | None] = Future()
            lost.set_exception(error)
            yield lost

    def _computed(self, query: Query, sql: str, span: _Span) -> Page | None:
        connection = self._free.get()
        try:
            return None if connection is None else _page(query, sql, connection, span)
        finally:
            self._free.put(connection)

    def close(self) -> None:
        """End the threads: nobody waits for what they still compute.

        An interrupt while a thread starts leaves it out of the pool, which does not wait for it:
        its connection must not be closed under it, and it gets none afterwards.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        for connection in self._connections:
            connection.interrupt()
        self._pool.shutdown()
        for _ in self._connections:
            self._free.get()
        self._free.put(None)


def pages(
    query: Query, connection: sqlite3.Connection, readers: Readers | None = None
) -> Generator[Page]:
    """The pages of a table whose rows have numbers, in the order of these.

    Args:
        readers: begin with the pages at once; without any, each is computed when it is asked for.

    Raises:
        ValueError: a value is no integer.
        sqlite3.DatabaseError: the file is damaged. That comes, as any error, when it is the turn of
            the page, whatever was computed before.
    """
    spans = _spans(query, connection)
    if readers is None:
        sql = query.of_page()
        return (page for span in spans if (page := _page(query, sql, connection, span)))
    more = readers.submitted(query, spans)
    most = readers.count + 1 if query.text else _MOST_AHEAD
    return _in_order(deque(islice(more, most)), more)


def _in_order(
    coming: deque[Future[Page | None]], more: Iterator[Future[Page | None]]
) -> Generator[Page]:
    """The pages that are `coming`, and for each that is taken one `more`."""
    try:
        while coming:
            page = coming.popleft().result()
            coming.extend(islice(more, 1))
            if page is not None:
                yield page
    finally:  # nobody waits for the rest
        for later in coming:
            later.cancel()


def _spans(query: Query, connection: sqlite3.Connection) -> Iterator[_Span]:
    """Pages of at most `ROWS` rows, told by their numbers alone where these lie close together."""

    def end(order: str) -> tuple[int] | None:
        sql = f"SELECT rowid {query.source()} >= ? ORDER BY {order} LIMIT 1"
        row: tuple[int] | None = connection.execute(sql, (_LOWEST,)).fetchone()
        return row

    low, high = end("rowid"), end("rowid DESC")
    if low and high and 0 <= high[0] - low[0] < ROWS * _MOST_PAGES:
        yield from (
            (first, min(first + ROWS - 1, high[0])) for first in range(low[0], high[0] + 1, ROWS)
        )
        return
    nth = f"SELECT rowid {query.source()} >= ? ORDER BY rowid LIMIT 1 OFFSET {ROWS - 1}"
    first, last = _LOWEST, _LOWEST
    while last < _HIGHEST:
        (last,) = connection.execute(nth, (first,)).fetchone() or (_HIGHEST,)
        yield first, last
        first = last + 1


def _page(query: Query, sql: str, connection: sqlite3.Connection, span: _Span) -> Page | None:
    """One page; None without a row."""
    length, *texts = connection.execute(sql, span).fetchone()
    if not length:
        return None
    parsed = (np.fromstring(text, dtype=np.int64, sep=",") for text in texts)
    columns: Table = dict(zip(query.select, parsed, strict=False))
    if any(len(column) != length for column in columns.values()):
        raise ValueError("a column of integers holds texts")
    return Page(narrow_table(columns), texts[-1] if query.text else "")


def chunks(query: Query, connection: sqlite3.Connection) -> Generator[Page]:
    """The same of a table whose rows have no numbers to go on from, with pandas."""
    import pandas as pd

    named = ", ".join(f'{value} AS "{column}"' for column, value in query.select.items())
    chosen = f"WHERE {query.condition}" if query.condition else ""
    sql = f"SELECT {named} FROM {query.table} {chosen}"
    with _errors_of_sqlite():
        for rows in pd.read_sql_query(sql, connection, chunksize=ROWS):
            if rows.empty:
                continue
            if any(dtype != np.int64 for dtype in rows.dtypes):
                raise ValueError("a column of integers holds something else")
            yield Page({column: rows[column].to_numpy() for column in query.select}, "")


@contextmanager
def _errors_of_sqlite() -> Iterator[None]:
    """Errors as SQLite raises them, without those that pandas makes of them."""
    import pandas as pd

    try:
        yield
    except pd.errors.DatabaseError as error:
        raise error.__cause__ or error from error

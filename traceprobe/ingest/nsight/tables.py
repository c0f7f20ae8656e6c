"""Tolerant access to an export: which tables and columns exist, and integer columns from them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np

from traceprobe.ingest.joins import Table, concatenate_tables, keep_rows, narrow_table
from traceprobe.ingest.nsight.damaged_pages import DAMAGE, copy_readable_rows, interrupted
from traceprobe.ingest.nsight.nvtx_texts import NOTED_SEQUENCE, OWN, NvtxTexts
from traceprobe.ingest.nsight.pages import Page, Query, Readers, chunks, pages
from traceprobe.ingest.untrusted_values import FARTHEST_NS, NAME_LENGTH, bounded_text
from traceprobe.model.codes import UNKNOWN, Bools, Ints

MISSING = int(np.iinfo(np.int64).min)
"""A time that is not there; unlike UNKNOWN no clock ever shows it."""
TIMES = {"start": MISSING, "end": MISSING}
"""Of rows that count only with both."""
_PREFIX = "CUPTI_ACTIVITY_KIND_"
KERNEL, MEMCPY, MEMSET, RUNTIME, GRAPH, SYNCHRONIZATION, EVENT = (
    _PREFIX + table
    for table in (
        *("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "SYNCHRONIZATION"),
        "CUDA_EVENT",
    )
)
EXPORT_TABLES = {"StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", KERNEL, MEMCPY, GRAPH}
"""Any of these makes a SQLite file an export."""
_OURS = re.compile(
    r"(CUPTI|NVTXT?|ENUM|TARGET_INFO|META_DATA|EXPORT_META|MPI|PROFILER|DIAGNOSTIC|OSRT)_"
    r"|(StringIds|ThreadNames|GPU_METRICS|traceprobe)$"
)
"""Tables of exports; others are left where they are."""
_TABLE = "CREATE TABLE "
"""How SQLite writes down a real table, however it was created."""
_MOST_TABLES = 10_000
_ROW_BYTES = 16
"""What a row counts beside its texts, of which it may have none."""
Result = TypeVar("Result")
Choose = Callable[[Table, list[str]], Bools]
NUMBERING = "traceprobe_number"
"""An SQL function that gives each distinct text a number."""


def _is_time(column: Ints) -> Bools:
    return np.asarray((column >= -FARTHEST_NS) & (column <= FARTHEST_NS), dtype=np.bool_)


class TooMuchText(Exception):
    """The rows of a file hold more than the file: its pages are used many times over."""


class _Joined(msgspec.Struct, frozen=True):
    """Texts that are read with columns of integers, those of many rows in one.

    Args:
        text: in SQL. columns: further ones by their SQL, which `parsed` takes away.
        parsed: the columns of a page, from its joined texts and its columns so far. It raises
            ValueError where the texts cannot be told apart.
    """

    text: str
    columns: Mapping[str, str]
    parsed: Callable[[str, Table], Table]


class Database:
    """One export.

    Only what is stored is read. The rows of a view, of a virtual table, and the values of a column
    that is generated are made up on the way, and a few bytes of SQL can make up any number of them.

    Args:
        connections: the first is for whatever is asked; the others, if any, compute ahead.
        budget: bytes of texts and blobs that may be read in all.

    Attributes:
        columns: names of the columns of each table.
        left_out: tables of an export that are there as something else.
        table_names: of all tables, those of an export or not.
    """

    def __init__(self, connections: Sequence[sqlite3.Connection], budget: int) -> None:
        connection, *ahead = connections
        self._readers = Readers(ahead) if ahead else None
        self._begun: dict[str, tuple[Query, Generator[Page]]] = {}
        self._connection = connection
        self._encoding = encoding(connection)
        self._budget = budget
        self.lost = 0
        self.mended: dict[str, int] = {}
        """Tables with damaged pages, and the rows that are missing of each."""
        self._copies: dict[str, sqlite3.Connection] = {}
        self._number: Callable[[bytes | None, Any], int] | None = None
        rows = connection.execute(
            f"SELECT name, rootpage, substr(sql, 1, {len(_TABLE)}) FROM sqlite_master "
            f"WHERE type IN ('table', 'view') LIMIT {_MOST_TABLES}"
        ).fetchall()
        named = [row for row in rows if isinstance(row[0], str) and _OURS.match(row[0])]
        # What the entry calls itself is a text like any other; a real table has a page.
        real = [name for name, page, sql in named if page and sql == _TABLE]
        self.columns = {name: columns for name in real if (columns := self._columns(name))}
        self.table_names = [row[0] for row in rows if isinstance(row[0], str)]
        self.left_out = sorted({name for name, _, _ in named} - set(self.columns))

    def _columns(self, table: str) -> set[str]:
        """Names of the columns; none of a table that computes some of them, or makes no sense."""
        try:
            rows = self._connection.execute(f"PRAGMA table_xinfo({_quote(table)})").fetchall()
        except DAMAGE as error:
            if interrupted(error):
                raise
            return set()
        return set() if any(row[6] for row in rows) else {row[1] for row in rows}

    def spend(self, values: Iterable[object], rows: int = 1) -> None:
        """Count rows against the budget.

        Raises:
            TooMuchText: that is used up.
        """
        self._budget -= _ROW_BYTES * rows
        self._budget -= sum(len(v) for v in values if isinstance(v, (str, bytes)))
        if self._budget < 0:
            raise TooMuchText

    def begin(self, table: str, wanted: Mapping[str, int]) -> None:
        """Let threads, if there are any, compute what `integers` will be asked for."""
        if self._readers and self._is_there(table, wanted) and self._has_row_ids(table):
            query = Query(_quote(table), self._plain(table, wanted), "")
            self._begun[table] = query, pages(query, self._connection, self._readers)

    def integers(self, table: str, wanted: Mapping[str, int], condition: str = "") -> Table | None:
        """Columns of integers of a table, in the file's own row order.

        Args:
            wanted: column to the value that stands for a NULL, a text or a missing column; rows in
                which MISSING has to stand for something, or for what no clock can show, are left
                out and counted in `lost`.
            condition: SQL that chooses rows.

        Returns:
            None where the table or the first of the columns does not exist, or it is empty.
        """
        return self._integers(table, wanted, condition, lambda page: page, {})

    def named(
        self,
        table: str,
        wanted: Mapping[str, int],
        condition: str,
        choose: Choose | None = None,
        *,
        whole: bool = False,
    ) -> tuple[Table | None, list[str]]:
        """The same of NVTX rows, with a column `text`: the number of each row's text.

        And `sequence`, the number that autograd's NVTX notes of operators, else UNKNOWN.

        Args:
            choose: which rows of a page to keep, by its columns and the texts so far; else all.
            whole: leave operators their sequence number, id and sizes, which make each text unique.

        Returns:
            The rows and the texts, which are not all distinct: own ones, else registered strings.
        """
        present = self.columns.get(table, set())
        text = "text" if "text" in present else "NULL"
        string = "textId" if "textId" in present else "NULL"
        found = NvtxTexts(self.strings, self._encoding, whole=whole)

        def reduced(page: Table) -> Table:
            page["sequence"] = found.sequences(page["text"], page["sequence"])
            missing = {c: d for c, d in wanted.items() if c not in page}
            page |= {c: np.full(len(page["text"]), d, np.int64) for c, d in missing.items()}
            return page if choose is None else keep_rows(page, choose(page, found.texts))

        def parsed(texts: str, page: Table) -> Table:
            self.spend((texts,), rows=len(page["string"]))
            number, sequence = found.of_page(texts, page.pop("string"))
            return {**page, "text": number, "sequence": sequence}

        def number(own: bytes | None, registered: Any) -> int:
            if own is not None:
                self.spend((own,))
            return found.of_row(own, registered)

        self._number = number
        for connection in (self._connection, *self._copies.values()):
            connection.create_function(NUMBERING, 2, number, deterministic=True)
        joined = _Joined(
            f"ifnull({text}, '')",
            {"string": f"CASE WHEN {text} IS NULL THEN ifnull({string}, {UNKNOWN}) ELSE {OWN} END"},
            parsed,
        )
        each = {
            "text": f"{NUMBERING}(CAST({text} AS BLOB), {string})",
            "sequence": NOTED_SEQUENCE if "text" in present else str(UNKNOWN),
        }
        return self._integers(table, wanted, condition, reduced, each, joined), found.texts

    def _integers(
        self,
        table: str,
        wanted: Mapping[str, int],
        condition: str,
        reduced: Callable[[Table], Table],
        each: Mapping[str, str],
        joined: _Joined | None = None,
    ) -> Table | None:
        """Columns of integers, and those that SQL computes of each row or of joined texts."""
        if not self._is_there(table, wanted):
            return None
        budget = self._budget
        try:
            select = self._plain(table, wanted)
            select |= joined.columns if joined else each
            rows = self._rows(table, select, condition, reduced, joined)
        except ValueError:  # a text or a fraction among the integers; to ask for them takes longer
            self._budget = budget
            select = {
                c: f"CASE WHEN typeof({q}) IN ('integer', 'real') THEN CAST({q} AS INTEGER) "
                f"ELSE {d} END"
                for c, (q, d) in self._stored(table, wanted).items()
            }
            rows = self._rows(table, {**select, **each}, condition, reduced)
        if rows is None:
            return None
        length = len(rows[next(iter(wanted))])
        missing = {c: d for c, d in wanted.items() if c not in rows}
        found = rows | {c: np.full(length, d, dtype=np.int64) for c, d in missing.items()}
        needed = [column for column, default in wanted.items() if default == MISSING]
        keep = np.all([_is_time(found[column]) for column in needed], axis=0)
        self.lost += int(np.count_nonzero(~keep))
        return keep_rows(found, keep)

    def _is_there(self, table: str, wanted: Mapping[str, int]) -> bool:
        return next(iter(wanted)) in self.columns.get(table, set())

    def _stored(self, table: str, wanted: Mapping[str, int]) -> dict[str, tuple[str, int]]:
        """The columns that a table has, quoted, and what stands for a NULL."""
        return {c: (_quote(c), d) for c, d in wanted.items() if c in self.columns[table]}

    def _plain(self, table: str, wanted: Mapping[str, int]) -> dict[str, str]:
        """SQL of the columns, where they hold integers alone."""
        return {c: f"ifnull({q}, {d})" for c, (q, d) in self._stored(table, wanted).items()}

    def _rows(
        self,
        table: str,
        select: Mapping[str, str],
        condition: str,
        reduced: Callable[[Table], Table],
        joined: _Joined | None = None,
    ) -> Table | None:
        """Columns by SQL expression, None without a row.

        Raises:
            ValueError: a value is no integer, or texts cannot be joined.
            sqlite3.DatabaseError: the file is damaged.
        """
        numbered = self._has_row_ids(table)
        if joined and not numbered:
            raise ValueError("rows without numbers do not come in pages")

        query = Query(_quote(table), select, condition, joined.text if joined else "")

        def parts() -> list[Table]:
            read = self._pages(table, query) if numbered else chunks(query, self._on(table))
            with closing(read):  # at once, also where that has an error: threads work for it
                try:
                    return [narrow_table(reduced(parsed(page))) for page in read]
                except sqlite3.DataError as error:
                    if joined:
                        raise ValueError("the texts of a page are too long") from error
                    raise

        def parsed(page: Page) -> Table:
            return joined.parsed(page.texts, page.columns) if joined else page.columns

        found = self._tolerant(table, parts)
        return concatenate_tables(found) if found else None

    def _tolerant(self, table: str, query: Callable[[], Result]) -> Result:
        """The result of a query; of a table with damaged pages, that on what can be read of it.

        Raises:
            sqlite3.DatabaseError: that cannot be read either, or a query takes far too long.
        """
        try:
            return query()
        except DAMAGE as error:
            if self._budget < 0:  # SQLite does not pass on what a function raises
                raise TooMuchText from error
            if interrupted(error) or table in self.mended:
                raise
        columns = sorted(_quote(column) for column in self.columns[table])
        self._copies[table], self.mended[table] = copy_readable_rows(
            self._connection,
            _quote(table),
            columns,
            self.spend,
            encoding=self._encoding,
            numbered=self._has_row_ids(table),
        )
        if self._number is not None:
            self._copies[table].create_function(NUMBERING, 2, self._number, deterministic=True)
        return query()

    def close(self) -> None:
        """End the threads, and delete the copies of damaged tables."""
        if self._readers:
            self._readers.close()
        for copy in self._copies.values():
            copy.close()

    def _on(self, table: str) -> sqlite3.Connection:
        return self._copies.get(table, self._connection)

    def _pages(self, table: str, query: Query) -> Generator[Page]:
        # A copy has one connection, and only the first one knows our function.
        alone = table in self._copies or any(NUMBERING in sql for sql in query.select.values())
        begun, found = self._begun.pop(table, (None, None))
        if found is not None and begun == query and not alone:
            return found
        return pages(query, self._on(table), None if alone else self._readers)

    def _has_row_ids(self, table: str) -> bool:
        """Whether rows have numbers of SQLite's own, which no column hides by its name."""
        if any(column.lower() == "rowid" for column in self.columns[table]):
            return False
        try:
            self._connection.execute(f"SELECT rowid FROM {_quote(table)} LIMIT 0")
        except DAMAGE as error:
            if interrupted(error):
                raise
            return "no such column" not in str(error)
        return True

    def _where(self, table: str, condition: str) -> str:
        chosen = f"WHERE {condition}" if condition else ""
        return f"{chosen} ORDER BY rowid" if self._has_row_ids(table) else chosen

    def values(
        self, table: str, columns: Sequence[str], condition: str
    ) -> list[tuple[object, ...]]:
        """Columns, as stored, of the rows that `condition` selects; NULLs for missing ones.

        No rows where none of the columns exists.
        """
        present = self.columns[table]
        if present.isdisjoint(columns):
            return []
        select = ", ".join(_quote(c) if c in present else "NULL" for c in columns)
        where = self._where(table, condition)
        return self._fetched(table, f"SELECT {select} FROM {_quote(table)} {where}")

    def rows(self, table: str, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
        """Rows of a small table; a missing column gives NULLs, a missing table no rows."""
        present = self.columns.get(table)
        if present is None:
            return []
        select = ", ".join(_quote(c) if c in present else "NULL" for c in columns)
        query = f"SELECT {select} FROM {_quote(table)}"
        return self._fetched(table, query)

    def _fetched(self, table: str, query: str) -> list[tuple[object, ...]]:
        def rows() -> list[tuple[object, ...]]:
            found = []
            for row in self._on(table).execute(query):
                self.spend(row)
                found.append(row)
            return found

        return self._tolerant(table, rows)

    def pairs(self, table: str, key: str = "name", value: str = "value") -> dict[str, str]:
        """A key-value table as a dict of strings."""
        return {
            bounded_text(k): bounded_text(v, NAME_LENGTH) for k, v in self.rows(table, (key, value))
        }

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Facts of the export: META_DATA_EXPORT, before schema 3.4 EXPORT_META_DATA."""
        return self.pairs("EXPORT_META_DATA") | self.pairs("META_DATA_EXPORT")

    @cached_property
    def strings(self) -> dict[int, str]:
        """StringIds: id to text."""
        return {
            i: bounded_text(value, NAME_LENGTH)
            for i, value in self.rows("StringIds", ("id", "value"))
            if isinstance(i, int) and value is not None
        }

    def labels(self, table: str) -> dict[int, str]:
        """An ENUM_* table: code to label, empty where the export has none."""
        return {
            code: bounded_text(label or name)
            for code, name, label in self.rows(table, ("id", "name", "label"))
            if isinstance(code, int)
        }


def encoding(connection: sqlite3.Connection, schema: str = "main") -> str:
    """How a database stores its texts, and so the bytes that SQL makes of one: a codec's name."""
    return str(connection.execute(f"PRAGMA {schema}.encoding").fetchone()[0])


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""Make a SQLite export of Nsight Systems longer.

    python -m benchmarks.grow_nsight SOURCE.sqlite[.gz] TARGET.sqlite FACTOR

The rows of every table of events are repeated later in time, with new correlation ids and step
numbers, so that the file stays a valid export of more steps. What is not wholly between the first
and the last step or CUDA event is not repeated: the set-up, marks, ranges that never close.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.kineto_text import GZIP
from benchmarks.measured_input import Input

_STEP = re.compile(r"((?:[Ss]tep|[Ii]teration)[ _:#]*)(\d+)")
_LABEL = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"


def grow(source: Path, target: Path, factor: int) -> Input:
    """Write `source` repeated `factor` times to `target`.

    Raises:
        ValueError: `source` has no CUDA events.
    """
    decompress(source, target)
    with closing(sqlite3.connect(target, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        tables = _event_tables(db)
        cuda = [t for t in tables if "correlationId" in _columns(db, t)]
        steps = _find_steps(db)
        times = [_one(db, f'SELECT min(start), max("end") FROM {t}') for t in cuda if _timed(db, t)]
        known = [(first, last) for first, last in [*times, steps] if first is not None]
        if not known:
            raise ValueError(f"{source} has no CUDA events")
        first, last = min(first for first, _ in known), max(last for _, last in known)
        span = last - first + 1
        stride = 1 + max(
            _one(db, f"SELECT ifnull(max(correlationId), 0) FROM {t}")[0] for t in cuda
        )
        last_row = {t: _one(db, f"SELECT ifnull(max(rowid), 0) FROM {t}")[0] for t in tables}
        db.execute("BEGIN")
        for k in range(1, factor):
            for table in tables:
                arguments = {
                    "k": k,
                    "later": k * span,
                    "ids": k * stride,
                    "last_row": last_row[table],
                    "first": first,
                    "last": last,
                }
                db.execute(_repeat(db, table), arguments)
        _lengthen(db, (factor - 1) * span)
        db.execute("COMMIT")
        rows = sum(_one(db, f"SELECT count(*) FROM {t}")[0] for t in tables)
    size = target.stat().st_size
    return Input(factor, str(target), rows, size, size)


def decompress(source: Path, target: Path) -> None:
    """A plain copy of a file that may be gzipped."""
    with source.open("rb") as raw:
        gzipped = raw.read(2) == GZIP
    with gzip.open(source) if gzipped else source.open("rb") as data, target.open("wb") as out:
        shutil.copyfileobj(data, out, 1 << 20)


def plain_bytes(source: Path) -> int:
    """Size of the source without compression."""
    with source.open("rb") as raw:
        if raw.read(2) != GZIP:
            return source.stat().st_size
    with gzip.open(source) as data:
        return data.seek(0, 2)


def _one(db: sqlite3.Connection, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = db.execute(query).fetchone()
    return row


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    """Those that a copy of a row takes over: SQLite numbers the rows of an integer key itself."""
    return [name for _, name, _, _, _, key in db.execute(f"PRAGMA table_info({table})") if not key]


def _timed(db: sqlite3.Connection, table: str) -> bool:
    return {"start", "end"} <= set(_columns(db, table))


def _event_tables(db: sqlite3.Connection) -> list[str]:
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [n for n in names if _timed(db, n) or "correlationId" in _columns(db, n)]


def _repeat(db: sqlite3.Connection, table: str) -> str:
    """The statement that writes copy `k` of the rows up to `last_row`, between two times."""
    columns = _columns(db, table)
    values = {column: f'"{column}"' for column in columns}
    if _timed(db, table):
        values |= {"start": "start + :later", "end": '"end" + :later'}
    if "correlationId" in values:
        values["correlationId"] = (
            "CASE WHEN correlationId > 0 THEN correlationId + :ids ELSE correlationId END"
        )
    if {"text", "textId"} <= values.keys():
        renamed = f"(SELECT stem || (number + :k * apart) FROM temp.steps WHERE label = {_LABEL})"
        values["text"] = f"coalesce({renamed}, text)"
        values["textId"] = f"CASE WHEN {renamed} IS NULL THEN textId END"
    inside = ' AND start >= :first AND "end" <= :last' if _timed(db, table) else ""
    names = ", ".join(f'"{column}"' for column in columns)
    return (
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values.values())} FROM {table} "
        f"WHERE rowid <= :last_row{inside}"
    )


def _find_steps(db: sqlite3.Connection) -> tuple[int | None, ...]:
    """When the first step starts and the last one ends.

    Writes the table temp.steps: numbered names of steps, and how far apart copies number them.
    """
    db.execute("CREATE TABLE temp.steps (label TEXT PRIMARY KEY, stem TEXT, number INT, apart INT)")
    if not {"text", "textId"} <= set(_columns(db, "NVTX_EVENTS")):
        return None, None
    labels = db.execute(f"SELECT DISTINCT {_LABEL} FROM NVTX_EVENTS")
    found = [(m[0], m[1], int(m[2])) for (t,) in labels if t and (m := _STEP.fullmatch(t))]
    numbers = [number for _, _, number in found]
    apart = 1 + max(numbers) - min(numbers) if numbers else 0
    db.executemany("INSERT INTO temp.steps VALUES (?, ?, ?, ?)", [(*f, apart) for f in found])
    return _one(
        db,
        'SELECT min(start), max("end") FROM NVTX_EVENTS '
        f"WHERE {_LABEL} IN (SELECT label FROM temp.steps)",
    )


def _lengthen(db: sqlite3.Connection, more_ns: int) -> None:
    """The export says how long the capture was."""
    if _columns(db, "ANALYSIS_DETAILS"):
        db.execute(
            "UPDATE ANALYSIS_DETAILS SET duration = duration + :more, stopTime = stopTime + :more",
            {"more": more_ns},
        )


def main() -> None:
    """Grow one export and print what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("factor", type=int)
    options = parser.parse_args()
    print(json.dumps(asdict(grow(options.source, options.target, options.factor))))


if __name__ == "__main__":
    main()

"""A recording as it is kept: column by column, which takes half of the room of its rows.

What stands in a column is alike: names come again each step, times and numbers grow by little from
row to row. Values that are whole, or whole thousandths as Kineto's microseconds are, are kept as
what they grow by. All of a trace comes back but the order of events of different fields.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

SUFFIX = ".columns.xz"
_EVENTS, _ARGUMENTS, _SHAPES = "traceEvents", "args", "shapes"
_KINDS = ("ph", "cat")
"""Fields whose values tell events apart that are kept apart."""
_GROWN, _THOUSANDTHS, _BYTES = "grown", "thousandths", "bytes"
_MADE = "SELECT sql, type, name FROM sqlite_master WHERE sql IS NOT NULL"


def pack(path: Path) -> bytes:
    """What is kept of a file: a Chrome trace as JSON, or an export of Nsight Systems."""
    kept = _tables(path) if path.suffix == ".sqlite" else _trace(json.loads(path.read_bytes()))
    return lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9)


def unpack(content: bytes, path: Path) -> None:
    """Write a file whose columns were kept, in the format of its suffix."""
    import msgspec  # what packs runs where there may be none

    kept = msgspec.json.decode(lzma.decompress(content))
    if path.suffix == ".sqlite":
        _write_tables(kept, path)
    else:
        path.write_bytes(msgspec.json.encode(_whole(kept)))


def _trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    shapes: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for event in trace[_EVENTS]:
        kinds = tuple(event.get(name) for name in _KINDS)
        shape = (*kinds, tuple(event), tuple(event.get(_ARGUMENTS, ())))
        shapes.setdefault(shape, []).append(event)
    return {**trace, _EVENTS: [], _SHAPES: [_columns(events) for events in shapes.values()]}


def _columns(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields = {name: _column([e[name] for e in events]) for name in events[0] if name != _ARGUMENTS}
    if _ARGUMENTS in events[0]:
        inner = [event[_ARGUMENTS] for event in events]
        fields[_ARGUMENTS] = {name: _column([one[name] for one in inner]) for name in inner[0]}
    return {"fields": list(events[0]), "rows": len(events), "columns": fields}


def _whole(kept: Mapping[str, Any]) -> dict[str, Any]:
    trace = {name: value for name, value in kept.items() if name != _SHAPES}
    return {**trace, _EVENTS: list(chain.from_iterable(map(_events, kept[_SHAPES])))}


def _events(shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    names, columns = shape["fields"], dict(shape["columns"])
    if _ARGUMENTS in columns:
        inner = columns[_ARGUMENTS]
        rows: Any = zip(*map(_values, inner.values()), strict=True) if inner else ()
        each = [dict(zip(inner, row, strict=True)) for row in rows]
        columns[_ARGUMENTS] = each or [{} for _ in range(shape["rows"])]
    in_order = [columns[n] if n == _ARGUMENTS else _values(columns[n]) for n in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*in_order, strict=True)]


def _tables(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        made = database.execute(_MADE).fetchall()
        tables = {}
        for _, kind, name in made:
            if kind == "table":
                rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
                tables[name] = [_column(list(column)) for column in zip(*rows, strict=True)]
    return {"made": [[sql, kind] for sql, kind, _ in made], "tables": tables}


def _write_tables(kept: Mapping[str, Any], path: Path) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        # Each statement that makes a table would wait for the disk.
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = OFF")
        for sql, kind in kept["made"]:
            if kind == "table":
                database.execute(sql)
        for name, columns in kept["tables"].items():
            marks = ",".join("?" * len(columns))
            rows = zip(*map(_values, columns), strict=True)
            if columns:
                database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        for sql, kind in kept["made"]:
            if kind != "table":
                database.execute(sql)


def _column(values: list[Any]) -> Any:
    """A column as JSON: a list, or how it is to be read and a list."""
    if all(type(value) is int for value in values):
        return {_GROWN: _steps(values)}
    if all(type(value) is float for value in values):
        whole = [round(value * 1000) for value in values]
        if all(w / 1000 == value for w, value in zip(whole, values, strict=True)):
            return {_THOUSANDTHS: _steps(whole)}
    if any(isinstance(value, bytes) for value in values):
        return {_BYTES: [v.hex() if isinstance(v, bytes) else [v] for v in values]}
    return values


def _steps(values: Sequence[int]) -> list[int]:
    return [*values[:1], *(after - before for before, after in pairwise(values))]


def _values(column: Any) -> list[Any]:
    if isinstance(column, list):
        return column
    if _GROWN in column:
        return list(accumulate(column[_GROWN]))
    if _THOUSANDTHS in column:
        return [value / 1000 for value in accumulate(column[_THOUSANDTHS])]
    return [bytes.fromhex(v) if isinstance(v, str) else v[0] for v in column[_BYTES]]

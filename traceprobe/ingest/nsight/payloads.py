"""Payloads of NVTX ranges: numbers that a library attached, by the names it gave them.

`nsys export` writes them with `--include-blobs=true` as binary data or with `--include-json=true`
as text. A blob begins with the number of payloads in it, and for each its schema, size and offset,
all as 64-bit integers; the schema tables say where in a payload a field lies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from traceprobe.ingest.nsight.tables import Database
from traceprobe.model.codes import UNKNOWN, Int64s

_HEADER = 32
"""Bytes of a blob before the first payload of one."""
_WIDTHS = {
    **dict.fromkeys((5, 6, 15, 16), 4),
    **dict.fromkeys((7, 8, 9, 10, 17, 18, 22), 8),
}
"""Entry type of NVTX, where it is an integer, to its bytes."""
_Place = tuple[int, int]
"""Offset and width of a field in a payload, in bytes."""


def payloads(
    db: Database, table: str, condition: str, domain: Int64s, fields: Mapping[str, re.Pattern[str]]
) -> dict[str, Int64s]:
    """Fields of the rows that `condition` selects, UNKNOWN where a row does not have them.

    Args:
        domain: NVTX domain of each row; schemas are numbered per domain. Where rows were damaged
            and left out, nothing tells which payload is whose, and all fields stay UNKNOWN.
        fields: name of a column to what the library's name of the field matches.
    """
    found = {field: np.full(len(domain), UNKNOWN, dtype=np.int64) for field in fields}
    rows = db.values(table, ("binaryData", "jsonText"), condition)
    if len(rows) != len(domain):
        return found
    blobs, texts = zip(*rows, strict=True) if rows else ((), ())
    if any(blob is not None for blob in blobs):
        _from_blobs(blobs, domain, _layouts(db, fields), found)
    elif any(text is not None for text in texts):
        _from_texts(texts, fields, found)
    return found


def _layouts(
    db: Database, fields: Mapping[str, re.Pattern[str]]
) -> dict[tuple[int, int], dict[str, _Place]]:
    """(domain, schema) to the places of its fields; domains of two processes may share a number."""
    layouts: dict[tuple[int, int], dict[str, set[_Place]]] = {}
    columns = ("domainId", "schemaId", "idx", "type", "name", "offset")
    for domain, schema, index, kind, name, offset in db.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", columns
    ):
        width = _WIDTHS.get(kind) if isinstance(kind, int) else None
        at = 0 if offset is None and index == 0 else offset
        if width is None or not isinstance(domain, int):
            continue
        if not isinstance(at, int) or at < 0:  # before the payload there is nothing of it
            continue
        for field, pattern in fields.items():
            if pattern.search(str(name)) and isinstance(schema, int):
                places = layouts.setdefault((domain, schema), {})
                places.setdefault(field, set()).add((at, width))
    return {
        key: {field: next(iter(p)) for field, p in places.items() if len(p) == 1}
        for key, places in layouts.items()
    }


def _from_blobs(
    blobs: Sequence[object],
    domain: Int64s,
    layouts: Mapping[tuple[int, int], Mapping[str, _Place]],
    found: Mapping[str, Int64s],
) -> None:
    kept = [(i, b) for i, b in enumerate(blobs) if isinstance(b, bytes) and len(b) >= _HEADER]
    rows = np.array([i for i, _ in kept], dtype=np.int64)
    length = np.array([len(b) for _, b in kept], dtype=np.int64)
    data = np.frombuffer(b"".join(b for _, b in kept), dtype=np.uint8)
    base = np.cumsum(length) - length
    schema, size, offset = (_numbers(data, base + at, 8) for at in (8, 16, 24))
    whole = (offset >= _HEADER) & (size >= 0) & (offset <= length) & (size <= length - offset)
    for (owner, number), places in layouts.items():
        of_schema = whole & (domain[rows] == owner) & (schema == number)
        for field, (at, width) in places.items():
            has = of_schema & (at + width <= size)
            found[field][rows[has]] = _numbers(data, (base + offset)[has] + at, width)


def _numbers(data: np.typing.NDArray[np.uint8], at: Int64s, width: int) -> Int64s:
    """Little-endian integers at byte positions; 64-bit ones keep their bits."""
    cells = np.ascontiguousarray(data[at[:, None] + np.arange(width)])
    return cells.view(f"<i{width}")[:, 0].astype(np.int64)


def _from_texts(
    texts: Sequence[object], fields: Mapping[str, re.Pattern[str]], found: Mapping[str, Int64s]
) -> None:
    parsed: dict[object, dict[str, int]] = {None: {}}
    for i, text in enumerate(texts):
        if text not in parsed:
            parsed[text] = _numbers_of(str(text), fields)
        for field, value in parsed[text].items():
            found[field][i] = value


def _numbers_of(text: str, fields: Mapping[str, re.Pattern[str]]) -> dict[str, int]:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {
        field: value - (1 << 64) if value >= 1 << 63 else value
        for field, pattern in fields.items()
        for name, value in (content.items() if isinstance(content, dict) else ())
        if pattern.search(name) and type(value) is int and 0 <= value < 1 << 64
    }

"""Ids of an export: of processes and threads, and of strings as names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceprobe.ingest.nsight.tables import Database
from traceprobe.ingest.untrusted_values import NAME_LENGTH
from traceprobe.model.codes import UNKNOWN, Int64s, Ints
from traceprobe.model.numbering import narrow, numbered


def process_key(global_id: Ints) -> Int64s:
    """Host, VM and process bits of a serialised id: the same for a process and its threads."""
    key: Int64s = global_id.astype(np.int64, copy=False) >> 24
    key[global_id == UNKNOWN] = 0
    return key


def pid(process_key: int) -> int:
    """The operating system's process id."""
    return int(process_key) & 0xFFFFFF


def tid(global_id: Ints) -> Int64s:
    """The operating system's thread id."""
    thread: Int64s = global_id.astype(np.int64, copy=False) & 0xFFFFFF
    thread[global_id == UNKNOWN] = UNKNOWN
    return thread


class NameTable:
    """A name table that grows; called once per distinct text."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """Number of the name."""
        return self.index.setdefault(name[:NAME_LENGTH], len(self.index))


def per_id(ids: Ints, *values: Callable[[int], int]) -> list[Ints]:
    """Columns of values by id or code; each function is called once for each distinct one."""
    distinct, inverse = numbered(ids)
    columns = (np.array([int(v(i)) for i in distinct.tolist()], dtype=np.int64) for v in values)
    return [narrow(column)[inverse] for column in columns]


def per_text(db: Database, ids: Ints, *values: Callable[[str], int]) -> list[Ints]:
    """Columns of values by the strings that ids stand for."""

    def of_text(value: Callable[[str], int]) -> Callable[[int], int]:
        return lambda i: value(db.strings.get(i, "unknown"))

    return per_id(ids, *map(of_text, values))

"""Ids of an export: of processes and threads, and of strings as names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceprobe.ingest.nsight.tables import Database
from traceprobe.ingest.untrusted_values import NAME_LENGTH
from traceprobe.model.events import UNKNOWN, Int64s, Ints


def process_key(global_id: Ints) -> Int64s:
    """Host, VM and process bits of a serialised id: the same for a process and its threads."""
    return np.where(global_id == UNKNOWN, 0, global_id.astype(np.int64) >> 24)


def pid(process_key: int) -> int:
    """The operating system's process id."""
    return int(process_key) & 0xFFFFFF


def tid(global_id: Ints) -> Int64s:
    """The operating system's thread id."""
    return np.where(global_id == UNKNOWN, UNKNOWN, global_id.astype(np.int64) & 0xFFFFFF)


class NameTable:
    """A name table that grows; called once per distinct text."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """Number of the name."""
        return self.index.setdefault(name[:NAME_LENGTH], len(self.index))


def names_and_values(
    db: Database, names: NameTable, ids: Ints, value: Callable[[str], int]
) -> tuple[Ints, Ints]:
    """String ids to (name number, value of the name), computed once per distinct id."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    texts = [db.strings.get(int(i), "unknown") for i in distinct]
    return (
        np.array([names(t) for t in texts], dtype=np.int32)[inverse],
        np.array([int(value(t)) for t in texts], dtype=np.int8)[inverse],
    )

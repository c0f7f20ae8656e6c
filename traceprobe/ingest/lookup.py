"""Joins without a database: values per distinct name, rows by id, unions of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from traceprobe.model import UNKNOWN, Bools, Int64s


def per_name(ids: Int64s, names: Sequence[str], value: Callable[[str], Any]) -> Int64s:
    """Apply a function to each distinct name and spread the result over the rows."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    return np.array([int(value(names[i])) for i in distinct], dtype=np.int64)[inverse]


def find(wanted: Int64s, keys: Int64s, order: Int64s) -> Int64s:
    """For each wanted id the first row of `keys` in `order` that has it, or UNKNOWN."""
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    by_key = order[np.argsort(keys[order], kind="stable")]
    at = np.minimum(np.searchsorted(keys[by_key], wanted), len(keys) - 1)
    rows = by_key[at]
    return np.where((keys[rows] == wanted) & (wanted != UNKNOWN), rows, UNKNOWN)


def take(column: Int64s, rows: Int64s) -> Int64s:
    """Values of a column at row numbers; UNKNOWN rows give UNKNOWN."""
    if not len(column):
        return np.full(len(rows), UNKNOWN, dtype=np.int64)
    return np.where(rows == UNKNOWN, UNKNOWN, column[rows])


def union(table: Mapping[str, Int64s], mask: Bools) -> tuple[Int64s, Int64s]:
    """Starts and ends of the union of the chosen rows, ascending."""
    order = np.argsort(table["t0"][mask], kind="stable")
    t0, t1 = table["t0"][mask][order], np.maximum.accumulate(table["t1"][mask][order])
    first = np.concatenate([[True], t0[1:] > t1[:-1]])
    last = np.concatenate([first[1:], [True]])
    return t0[first], t1[last]

"""Joins without a database: values per distinct name, rows by id, unions of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Ints
from traceprobe.model.numbering import narrow, numbered

Table = dict[str, Ints]
"""Columns of equal length; all but the times may be narrower integers than int64."""
_TIMES = ("t0", "t1", "start", "end")


def narrow_table(table: Table) -> Table:
    """The columns in the narrowest integers that hold them.

    Times keep their width, since numbers are added to them. Most other columns of a chunk are one
    number throughout or small ones: a big trace is held in a third of the memory.
    """
    return {c: v if c in _TIMES else narrow(v) for c, v in table.items()}


def distinct_rows(*columns: Ints) -> list[Ints]:
    """The distinct rows of some columns, ascending.

    Columns of millions of rows mostly hold a few numbers: telling these takes neither a sort nor a
    table of hashes.
    """
    place: Ints = np.zeros(len(columns[0]), dtype=np.int8)
    for column in columns:
        distinct, mine = numbered(column)
        _, place = numbered(place * np.int64(max(len(distinct), 1)) + mine)
    row = np.zeros(int(place.max(initial=-1)) + 1, dtype=np.int64)
    row[place] = np.arange(len(place))
    return [column[row] for column in columns]


def empty_table(*columns: str) -> Table:
    """A table without rows."""
    return {column: np.empty(0, dtype=np.int64) for column in columns}


def keep_rows(table: Table, keep: Bools) -> Table:
    """The chosen rows of a table; the table itself, and no copy, where those are all."""
    return table if keep.all() else {column: values[keep] for column, values in table.items()}


def concatenate_tables(parts: Sequence[Table]) -> Table:
    """One table of several with the same columns; empties them, so that none is there twice."""
    return {column: np.concatenate([p.pop(column) for p in parts]) for column in list(parts[0])}


def per_name(ids: Ints, names: Sequence[str], value: Callable[[str], Any]) -> Ints:
    """Values of the rows by their names; the function is called once for each distinct name."""
    distinct = numbered(ids)[0]
    values = np.zeros(len(names), dtype=np.int64)
    values[distinct] = [int(value(names[i])) for i in distinct]
    return narrow(values)[ids]


def find_rows(wanted: Ints, keys: Ints, order: Int64s) -> Int64s:
    """For each wanted id the first row of `keys` in `order` that has it, or UNKNOWN."""
    if not len(order) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    own = keys[order]
    if (own[1:] < own[:-1]).any():  # most profilers number calls in their order
        by_key = np.argsort(own, kind="stable")
        order, own = order[by_key], own[by_key]
    at = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
    return np.where((own[at] == wanted) & (wanted != UNKNOWN), order[at], UNKNOWN)


def find_rows_of_processes(
    wanted: Ints, owners: Ints, keys: Ints, processes: Ints, tiers: Iterable[Int64s]
) -> Int64s:
    """For each wanted id the first row of its own process that has it, or UNKNOWN.

    Args:
        owners: process of each wanted id. processes: of each of the `keys`.
        tiers: rows in the order in which they are looked at; those of a tier only for ids that none
            before has.
    """
    found = np.full(len(wanted), UNKNOWN, dtype=np.int64)
    for rows in tiers:
        missing = (found == UNKNOWN) & (wanted != UNKNOWN)
        process = processes[rows]
        for pid in numbered(owners[missing])[0]:
            own = missing & (owners == pid)
            found[own] = find_rows(wanted[own], keys, rows[process == pid])
        if not (found[missing] == UNKNOWN).any():
            break
    return found


def take_rows(column: Ints, rows: Int64s) -> Ints:
    """Values of a column at row numbers; UNKNOWN rows give UNKNOWN."""
    if not len(column):
        return np.full(len(rows), UNKNOWN, dtype=np.int64)
    return np.where(rows == UNKNOWN, UNKNOWN, column[rows])


def union_of_rows(table: Mapping[str, Ints], mask: Bools) -> tuple[Ints, Ints]:
    """Starts and ends of the union of the chosen rows, ascending."""
    order = np.argsort(table["t0"][mask], kind="stable")
    t0, t1 = table["t0"][mask][order], np.maximum.accumulate(table["t1"][mask][order])
    first = np.concatenate([[True], t0[1:] > t1[:-1]])
    last = np.concatenate([first[1:], [True]])
    return t0[first], t1[last]

"""Integers that stand for others: in the width that they need, or as places among the distinct."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.model.codes import Int64s, Ints

_WIDTHS = (np.int8, np.int16, np.int32)


def narrow(column: Ints) -> Ints:
    """The same numbers in the narrowest integers that hold them."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return column.astype(width, copy=False)
    return column


def numbered(ids: Ints) -> tuple[Ints, Ints]:
    """The distinct ids, ascending, and for each row the place of its own among them.

    Ids of one kind mostly lie close together: then a table of them all takes no sort.
    """
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if high - low >= len(ids):
        distinct, place = np.unique(ids, return_inverse=True)
        return distinct, place
    at = ids - np.int64(low)
    there = np.zeros(high - low + 1, dtype=np.bool_)
    there[at] = True
    places = narrow(np.cumsum(there) - 1)
    return np.flatnonzero(there) + low, places[at]


def row_order(leading: Sequence[Ints], others: Sequence[Ints]) -> Int64s:
    """Rows by the first key, then by the next; those that are equal in all keep their order.

    Args:
        leading: columns in which few rows are equal: only these are sorted by the others, too.
    """
    order = np.lexsort(leading[::-1])
    before, after = order[:-1], order[1:]
    equal = np.logical_and.reduce([key[before] == key[after] for key in leading])
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[1:] |= equal
    tied[:-1] |= equal
    rows = order[tied]
    order[tied] = rows[np.lexsort([key[rows] for key in (*others[::-1], *leading[::-1])])]
    return order

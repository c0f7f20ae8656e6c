"""Which interval of a thread encloses which, and which is the innermost at an instant."""

from __future__ import annotations

import numpy as np

from traceprobe.model.events import UNKNOWN, Int64s


def parents(t0: Int64s, t1: Int64s) -> Int64s:
    """Row of the interval that encloses each one most closely, UNKNOWN where none does.

    Args:
        t0, t1: intervals of one thread, which nest, sorted by start, of equal ones the longer
            first. One that outlasts what it began in is taken to end with it.
    """
    count = len(t0)
    found = np.full(count, UNKNOWN, dtype=np.int64)
    rows = np.arange(count)
    # Level by level: what the open intervals of a level do not enclose is on that level too.
    while len(rows):
        reach = np.maximum.accumulate(t1[rows])
        first = np.concatenate([[True], t0[rows][1:] >= reach[:-1]])
        owner = rows[first][np.cumsum(first) - 1]
        inner = ~first
        found[rows[inner]] = owner[inner]
        rows = rows[inner]
    return found


def innermost_rows(t0: Int64s, t1: Int64s, parent: Int64s, instants: Int64s) -> Int64s:
    """Row of the innermost interval at each instant, UNKNOWN where there is none.

    Args:
        t0, t1, parent: intervals and their `parents`. The end of an interval is in it: a call may
            return in the same nanosecond as its operator.
    """
    at = np.searchsorted(t0, instants, "right") - 1
    outside = at >= 0
    outside[outside] = t1[at[outside]] < instants[outside]
    while outside.any():
        at[outside] = parent[at[outside]]
        outside = at >= 0
        outside[outside] = t1[at[outside]] < instants[outside]
    return at

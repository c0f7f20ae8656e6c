"""Which operator launched each GPU operation: the innermost one that encloses the launch."""

from __future__ import annotations

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s, Kind
from traceprobe.model.taxonomy import Phase

MODEL_PHASES = (int(Phase.FORWARD), int(Phase.BACKWARD), int(Phase.RECOMPUTE))
"""Those in which a model computes: not the update of its parameters, nor what no range tells."""


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


def model_kernels(ops: pl.DataFrame) -> pl.DataFrame:
    """Kernels of forward and backward pass, with columns for `launching_rows`, name, t0 and t1.

    Args:
        ops: with these, `kind` and `phase`.
    """
    return ops.select("kind", "phase", "thread", "launch_t0", "name", "t0", "t1").filter(
        (pl.col("kind") == int(Kind.KERNEL)) & pl.col("phase").is_in(MODEL_PHASES)
    )


def launching_operators(ops: pl.DataFrame, operators: pl.DataFrame) -> Int64s:
    """Name of the operator that launched each GPU operation; UNKNOWN where none is recorded.

    Args:
        ops, operators: as `launching_rows` takes them.

    Returns:
        Indices into the names of the trace.
    """
    at, name = launching_rows(ops, operators), operators["name"].to_numpy()
    if not len(name):
        return at
    return np.where(at >= 0, name[np.maximum(at, 0)], UNKNOWN).astype(np.int64)


def launching_rows(ops: pl.DataFrame, operators: pl.DataFrame) -> Int64s:
    """Row of the operator that launched each GPU operation; UNKNOWN where none is recorded.

    Args:
        ops: with `thread` and `launch_t0`.
        operators: of the same process, `HOST_OPERATORS` in any order.
    """
    found = np.full(len(ops), UNKNOWN, dtype=np.int64)
    thread, launch = ops["thread"].to_numpy(), ops["launch_t0"].to_numpy()
    called = thread != UNKNOWN
    of_thread, t0, t1 = (operators[column].to_numpy() for column in ("thread", "t0", "t1"))
    for number in np.unique(thread[called]).tolist():
        rows = np.flatnonzero(of_thread == number)
        if not len(rows):
            continue
        rows = rows[np.lexsort((-t1[rows], t0[rows]))]
        begin, end = t0[rows], t1[rows]
        mine = np.flatnonzero(called & (thread == number))
        at = innermost_rows(begin, end, parents(begin, end), launch[mine])
        found[mine] = np.where(at >= 0, rows[np.maximum(at, 0)], UNKNOWN)
    return found

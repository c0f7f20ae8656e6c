"""The exclusive partition of GPU windows: where every nanosecond of a device went.

Classes claim time in a fixed order: compute by phase, then what communication, copies and memory
operations leave exposed, then idle by cause. The share of a class is the growth of the union when
its intervals join, so the classes sum to the window exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from traceprobe.model.codes import Int64s, Kind
from traceprobe.model.taxonomy import COMPUTE_PHASES, PARTITION
from traceprobe.timeline.intervals import (
    EMPTY,
    Intervals,
    merge,
    per_window,
    subtract,
    union,
)

Columns = Mapping[str, Int64s]
"""Class name to ns per window."""

TRANSFER_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "communication": (Kind.COMM,),
    "h2d": (Kind.H2D,),
    "d2h": (Kind.D2H,),
    "memory": (Kind.D2D, Kind.MEMSET),
}
"""What ops each of `TRANSFERS` is."""
_TRANSFERS = {
    int(kind): PARTITION.index(name) for name, kinds in TRANSFER_KINDS.items() for kind in kinds
}


def class_of_op() -> pl.Expr:
    """Index in `PARTITION` of what an op is, whatever runs beside it, of `kind` and `phase`."""
    kind, phase = pl.col("kind").cast(pl.Int64), pl.col("phase").cast(pl.Int64)
    transfer = kind.replace_strict(_TRANSFERS, default=None, return_dtype=pl.Int64)
    # The phases of kernels come first.
    return pl.when(kind == int(Kind.KERNEL)).then(phase).otherwise(transfer)


def busy_sets(ops: pl.DataFrame, phase: Int64s) -> dict[str, Intervals]:
    """When each class of work runs on one device, inclusive, in priority order.

    Args:
        ops: GPU ops of one device.
        phase: `Phase` of each op.
    """
    kind, t0, t1 = (ops[c].to_numpy() for c in ("kind", "t0", "t1"))
    kernel = kind == int(Kind.KERNEL)
    sets = {}
    for phase_number, name in enumerate(COMPUTE_PHASES):
        rows = kernel & (phase == phase_number)
        sets[name] = union(t0[rows], t1[rows])
    for name, kinds in TRANSFER_KINDS.items():
        rows = np.isin(kind, kinds)
        sets[name] = union(t0[rows], t1[rows])
    return sets


def exclusive_sets(sets: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """The time that each class claims after those before it, in the order of `sets`."""
    claimed, result = EMPTY, {}
    for name, intervals in sets.items():
        result[name] = subtract(intervals, claimed)
        if len(intervals.t0):  # many classes of a run are empty, and a merge sorts
            claimed = merge(claimed, intervals)
    return result


def exclusive(sets: Mapping[str, Intervals], edges: Int64s) -> dict[str, Int64s]:
    """Time that each class claims in each window after those before it; ns per window."""
    claimed, before = EMPTY, np.zeros(len(edges) - 1, dtype=np.int64)
    result = {}
    for name, intervals in sets.items():
        total = before
        if len(intervals.t0):
            claimed = merge(claimed, intervals)
            total = per_window(claimed, edges)
        result[name] = total - before
        before = total
    return result


def inclusive(sets: Mapping[str, Intervals], edges: Int64s) -> dict[str, Int64s]:
    """Busy time of each class in each window, whatever else runs; ns per window."""
    return {name: per_window(intervals, edges) for name, intervals in sets.items()}


def compute_intervals(sets: Mapping[str, Intervals]) -> Intervals:
    """When any kernel that is not communication runs."""
    return merge(*(sets[name] for name in COMPUTE_PHASES))

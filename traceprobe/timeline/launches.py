"""How far ahead of the device its host is: calls that launch, their delays, what is outstanding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from traceprobe.model.codes import Int64s
from traceprobe.timeline.counters import is_shared, launch_queue
from traceprobe.timeline.intervals import Intervals, intersect, per_window, union

if TYPE_CHECKING:
    import polars as pl

_QUANTILES = (0.5, 0.9)


class LaunchTimes(msgspec.Struct, frozen=True):
    """Launches of kernels, copies and memsets that have a call of their own.

    Args:
        call_ns: length of the call, median and 90th percentile.
        delay_ns: the same from its end to the start on the device, at least 0.
        outlasting: calls that are longer than what they launch.
    """

    count: int
    call_ns: tuple[float, float]
    delay_ns: tuple[float, float]
    outlasting: int


class QueueTimes(msgspec.Struct, frozen=True):
    """Outstanding launches (`counters.launch_queue`) over the time of some windows.

    Args:
        p50, p90: numbers that the queue is at or below for half the time, and for nine tenths.
        empty_ns: time without any; `starved_ns` of it with an idle device.
    """

    p50: int
    p90: int
    longest: int
    empty_ns: int
    starved_ns: int


def launch_times(ops: pl.DataFrame) -> LaunchTimes | None:
    """Calls and delays; None where no operation has a call of its own.

    Kernels of a graph have none: their call launches all of them, so that they share its number.

    Args:
        ops: of one process, columns t0, t1, launch_t0, launch_t1, linked, graph, correlation of
            GPU_OPS.
    """
    alone = (ops["linked"] & ~ops["graph"]).to_numpy() & ~is_shared(ops["correlation"])
    if not alone.any():
        return None
    t0, t1, begin, end = (ops[c].to_numpy()[alone] for c in ("t0", "t1", "launch_t0", "launch_t1"))
    end = np.maximum(end, begin)  # a damaged call may end before it begins
    call, delay = end - begin, np.maximum(t0 - end, 0)
    return LaunchTimes(len(t0), _both(call), _both(delay), int((call > t1 - t0).sum()))


def _both(ns: Int64s) -> tuple[float, float]:
    low, high = np.quantile(ns, _QUANTILES)
    return float(low), float(high)


def queue_times(
    ops: pl.DataFrame, edges: Int64s, chosen: Int64s, idle: Intervals
) -> QueueTimes | None:
    """The queue over some windows; None where no launch is known.

    Args:
        ops: of a device, columns of GPU_OPS; those launched before the windows, too.
        edges: of the windows, ns. chosen: indices of those that count.
        idle: when the device does nothing.
    """
    steps = launch_queue(ops)
    if steps.is_empty():
        return None
    time, value = steps["time_ns"].to_numpy(), steps["value"].to_numpy()
    at = np.searchsorted(time, edges, "right")
    start = np.insert(time, at, edges)
    waiting = np.insert(value, at, np.append(0, value)[at])[:-1]
    counts = np.zeros(len(edges) + 1, dtype=bool)  # before the first edge, and after each
    counts[chosen + 1] = True
    rows = np.diff(at + np.arange(len(edges)), prepend=0, append=len(start))
    length = np.diff(start)
    inside = np.repeat(counts, rows)[:-1] & (length > 0)
    # Exact: below 2^53 ns, which is 104 days.
    spent = np.bincount(waiting[inside], length[inside], minlength=1)
    until = np.cumsum(spent)
    p50, p90 = (int(np.searchsorted(until, part * until[-1])) for part in _QUANTILES)
    none = np.flatnonzero(inside & (waiting == 0))
    empty = union(start[none], start[none + 1])
    return QueueTimes(
        p50=p50,
        p90=p90,
        longest=len(spent) - 1,
        empty_ns=int(spent[0]),
        starved_ns=int(per_window(intersect(empty, idle), edges)[chosen].sum()),
    )

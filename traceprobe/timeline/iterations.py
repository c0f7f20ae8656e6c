"""Iterations: host windows from the step marker, GPU windows from what was launched in them.

An op belongs to the iteration in whose host window it was launched, whatever the thread: the GPU
lags the host by up to two steps. The GPU window of k runs from the first kernel or memset launched
in k to that of the next iteration; windows tile the device's timeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.model.accounting import MIN_COVERAGE, WARM_UP
from traceprobe.model.events import UNKNOWN, Bools, Call, Int64s, Kind
from traceprobe.timeline.step_markers import StepMarker

_STARTS_WINDOW = (Kind.KERNEL, Kind.COMM, Kind.MEMSET)


@dataclass(frozen=True)
class GpuWindows:
    """GPU windows of one device.

    Args:
        index: marker number of each window, ascending; iterations without GPU work have none.
        edges: len(index) + 1 window edges, ns; the last window ends with the device's last op.
    """

    index: Int64s
    edges: Int64s


def iteration_of_launches(starts: Int64s, launch_t0: Int64s, launched: Bools) -> Int64s:
    """Iteration number of each launch; UNKNOWN without a launch, or before the first marker."""
    k = np.searchsorted(starts, launch_t0, "right") - 1
    return np.where(launched, k, UNKNOWN).astype(np.int64)


def count_per_iteration(starts: Int64s, times: pl.Series) -> Int64s:
    """How many of these host times lie in each iteration; what precedes the first is left out."""
    k = np.searchsorted(starts, times.to_numpy(), "right") - 1
    return np.bincount(k[k >= 0], minlength=len(starts))


def gpu_windows(iteration: Int64s, kind: Int64s, t0: Int64s, t1: Int64s, count: int) -> GpuWindows:
    """Windows from the ops of one device.

    Args:
        iteration: iteration number of each op, UNKNOWN where it has none.
        count: number of markers.

    Returns:
        Windows in ascending order. A window that would begin before its predecessor does (work
        launched later but started earlier) is joined to it.
    """
    opens = (iteration >= 0) & np.isin(kind, _STARTS_WINDOW)
    never = np.iinfo(np.int64).max
    begin = np.full(count, never, dtype=np.int64)
    np.minimum.at(begin, iteration[opens], t0[opens])
    index = np.flatnonzero(begin != never)
    if not len(index):
        return GpuWindows(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    start = begin[index]
    ahead = np.concatenate([[True], start[1:] > np.maximum.accumulate(start)[:-1]])
    return GpuWindows(
        index[ahead], np.concatenate([start[ahead], [max(int(t1.max()), int(start.max()))]])
    )


def launch_coverage(calls: pl.DataFrame, starts: Int64s) -> tuple[Int64s, Int64s]:
    """Calls of each iteration that ask for GPU work, and those of them that have a GPU row.

    A memset without a row is no evidence of a cut capture: zero bytes leave none, in every step
    alike. So memsets count only where they have one.

    Args:
        calls: host calls of the process.
        starts: marker times.

    Returns:
        (asked, recorded), one entry per marker.
    """
    asks = pl.col("call").is_in([int(Call.LAUNCH), int(Call.GRAPH_LAUNCH), int(Call.COPY)])
    work = calls.filter(asks | pl.col("recorded"))
    recorded = work.filter(pl.col("recorded"))
    return count_per_iteration(starts, work["t0"]), count_per_iteration(starts, recorded["t0"])


def skip_reasons(
    windows: GpuWindows, marker: StepMarker, covered: list[float | None], collectives: Int64s
) -> list[str | None]:
    """Why each iteration is left out of the summary; None for those that are used.

    Args:
        covered: coverage of each iteration, None where it made no launches.
        collectives: collective kernels launched in each iteration.
    """
    count = len(marker.starts)
    reasons: list[str | None] = [None] * count
    has_window = np.isin(np.arange(count), windows.index)
    for k in range(count):
        share = covered[k]
        if share is not None and share < MIN_COVERAGE:
            reasons[k] = f"capture cut: {share:.1%} of its launches have a GPU row"
        elif not has_window[k]:
            reasons[k] = "no GPU work"
    if len(windows.index):
        last = int(windows.index[-1])
        reasons[last] = reasons[last] or "the last iteration has no end"
    used = [k for k in windows.index.tolist() if reasons[k] is None]
    if len(used) >= 4:
        first, rest = used[0], used[1:]
        length = dict(zip(windows.index.tolist(), np.diff(windows.edges).tolist(), strict=True))
        others = np.array([length[k] for k in rest])
        if length[first] > max(WARM_UP * float(np.median(others)), float(others.max())):
            reasons[first] = "warm-up: much longer than every other iteration"
        elif (
            len(set(collectives[rest].tolist())) == 1 and collectives[first] != collectives[rest[0]]
        ):
            reasons[first] = "warm-up: another number of collectives than every other iteration"
    return reasons

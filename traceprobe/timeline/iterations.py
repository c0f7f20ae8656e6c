"""Iterations: host windows from the step marker, GPU windows from what was launched in them.

An op belongs to the iteration in whose host window it was launched, whatever the thread: the GPU
lags the host by up to two steps. The GPU window of k runs from the first kernel or memset launched
in k to that of the next iteration, or, where none follows, until its range and its last op have
ended. Windows tile the device's timeline.

What the host does before the first kernel of an iteration, such as waiting for its batch, is in the
window before. The last window has none of that. Among many it is left out; of a few all are needed,
and where that is long each begins with what its own iteration begins with (`with_beginnings`,
`with_its_beginning`).
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.formatting import counted, percent
from traceprobe.model.accounting import (
    BATCH_BYTES,
    LAUNCHED_BEFORE,
    LONE_WAIT,
    MIN_COVERAGE,
    SKIPPED_AS_BEGUN,
    SKIPPED_AS_EMPTY,
    UNRECORDED,
    WARM_UP,
)
from traceprobe.model.codes import UNKNOWN, Bools, Call, Int64s, Kind
from traceprobe.timeline.intervals import Intervals, measure_between, per_window, subtract
from traceprobe.timeline.step_markers import ENOUGH, NEVER, StepMarker

_WHOLE = 0.5
"""The first iteration is cut if it has less than this part of the launches of every other one, and
only kernels mark iterations: the capture may have begun within it."""
_STARTS_WINDOW = (Kind.KERNEL, Kind.COMM, Kind.MEMSET)


class GpuWindows(msgspec.Struct, frozen=True):
    """GPU windows of one device.

    Args:
        index: marker number of each window, ascending; UNKNOWN for what lies between iterations.
            Iterations without GPU work have none.
        edges: len(index) + 1 window edges, ns.
        ends: whether the last window ends with its iteration, not with the capture.
    """

    index: Int64s
    edges: Int64s
    ends: bool


def iteration_of_launches(marker: StepMarker | None, launch_t0: Int64s, launched: Bools) -> Int64s:
    """Iteration number of each launch; UNKNOWN without a launch, or outside of all iterations."""
    if marker is None:
        return np.full(len(launch_t0), UNKNOWN, dtype=np.int64)
    return np.where(launched, marker.iteration_at(launch_t0), UNKNOWN).astype(np.int64)


def gpu_windows(
    iteration: Int64s, kind: Int64s, t0: Int64s, t1: Int64s, marker: StepMarker | None
) -> GpuWindows:
    """Windows from the ops of one device.

    Args:
        iteration: iteration number of each op, UNKNOWN where it has none.

    Returns:
        Windows in ascending order. A window that would begin before its predecessor does (work
        launched later but started earlier) is joined to it.
    """
    nothing = np.empty(0, dtype=np.int64)
    if marker is None:
        return GpuWindows(nothing, nothing, False)
    count = len(marker.starts)
    opens = (iteration >= 0) & np.isin(kind, _STARTS_WINDOW)
    begin = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(begin, iteration[opens], t0[opens])
    finish = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(finish, iteration[iteration >= 0], t1[iteration >= 0])
    index = np.flatnonzero(begin != NEVER)
    if not len(index):
        return GpuWindows(nothing, nothing, False)
    start = begin[index]
    ahead = np.concatenate([[True], start[1:] > np.maximum.accumulate(start)[:-1]])
    index, start = index[ahead], start[ahead]
    known = marker.ends[index[-1]] != NEVER
    last = max(int(finish[index[-1]]), int(marker.ends[index[-1]])) if known else int(t1.max())
    known = known and last > start[-1]  # what takes no time has no window
    edges = np.append(start, max(last, int(start[-1])))
    # Where a pause follows, the iteration ends with its range and its last op, if the next one
    # does not begin before.
    follows = marker.ends[index[:-1]] == marker.starts[np.minimum(index[:-1] + 1, count - 1)]
    stop = np.maximum(finish[index[:-1]], marker.ends[index[:-1]])
    at = np.flatnonzero(~follows & (stop < edges[1:-1]))
    return GpuWindows(
        np.insert(index, at + 1, UNKNOWN), np.insert(edges, at + 1, stop[at]), bool(known)
    )


def with_beginnings(
    windows: GpuWindows,
    ops: tuple[Int64s, Int64s, Int64s],
    marker: StepMarker | None,
    whole: Bools,
    waits: Intervals,
) -> GpuWindows:
    """Few windows, each with what is before its first kernel; others as they are.

    They begin once all that earlier iterations launched has ended, the first with its range, but no
    earlier than any other: it may have set the program up. They begin so only where that takes
    `UNRECORDED` of an iteration, and where the first waits for data as the others do: before the
    first launch of a capture nothing tells a wait that no range marks.

    Args:
        ops: iteration, start and end of each op of the device, as for `gpu_windows`.
        whole: which iterations the capture does not cut.
        waits: of the host for data.
    """
    index, edges = windows.index, windows.edges
    if marker is None or not windows.ends or UNKNOWN in index or not whole[index[-1]]:
        return windows
    if not 2 <= np.count_nonzero(whole[index]) <= ENOUGH:
        return windows
    begun = zip(index.tolist(), edges[:-1].tolist(), strict=True)
    ended = np.array([_ended(ops, marker, k, begin) for k, begin in begun])
    own = np.maximum(edges[:-1] - np.maximum(ended, marker.starts[index]), 0)
    if np.median(own[1:]) <= UNRECORDED * np.median(np.diff(edges)[:-1]):
        return windows
    own[0] = min(own[0], own[1:].max())
    waited = measure_between(waits, edges[:-1] - own, edges[:-1])
    if 2 * waited[0] * own[1:].sum() < own[0] * waited[1:].sum():
        return windows
    begins = np.append(edges[0] - own[0], np.minimum(ended, edges[:-1])[1:])
    if not (np.diff(begins) > 0).all():  # what takes no time has no window
        return windows
    return replace(windows, edges=np.append(begins, edges[-1]))


def with_its_beginning(
    windows: GpuWindows,
    ops: pl.DataFrame,
    marker: StepMarker | None,
    waits: Intervals,
) -> GpuWindows:
    """An only window, with its wait for data, or without one with the copy of its batch.

    What its host does before them may be the profiler that starts: no other window tells. It begins
    once all else that began before has ended, with its range at the earliest, and no longer before
    the first op than all of them last, as time zero does. A wait of `LONE_WAIT` windows is for a
    loader that starts.

    Args:
        ops: of the device, with columns iteration, kind, bytes, t0 and t1.
        waits: of the host for data, as ranges mark them.
    """
    if marker is None or not windows.ends or len(windows.index) != 1:
        return windows
    iteration, t0, t1 = (ops[name].to_numpy() for name in ("iteration", "t0", "t1"))
    (number,), (begin, end) = windows.index.tolist(), windows.edges.tolist()
    ended = _ended((iteration, t0, t1), marker, number, begin)
    least = max(int(marker.starts[number]), ended, 2 * int(t0.min()) - int(t1.max()))
    known = waits.t0[(waits.t1 > least) & (waits.t0 < begin)]
    if not len(known):
        batch = (pl.col("kind") == int(Kind.H2D)) & (pl.col("bytes") >= BATCH_BYTES)
        own = ops.select("iteration", "kind", "bytes", "t0").filter(
            batch & (pl.col("iteration") == number)
        )
        known = own["t0"].to_numpy()
    first = int(known.min(initial=begin))
    if begin - first >= LONE_WAIT * (end - begin):
        return windows
    first = max(first, least)
    if begin - first <= UNRECORDED * (end - begin):
        return windows
    return replace(windows, edges=np.array([first, end], dtype=np.int64))


def _ended(ops: tuple[Int64s, Int64s, Int64s], marker: StepMarker, number: int, begin: int) -> int:
    """When all has ended that began before a window does, and is of no iteration or of one before.

    Args:
        ops: iteration, start and end of each op of the device.
    """
    iteration, t0, t1 = ops
    return int(t1[(iteration < number) & (t0 < begin)].max(initial=marker.starts[0]))


def launch_coverage(calls: pl.DataFrame, marker: StepMarker | None) -> tuple[Int64s, Int64s]:
    """Calls of each iteration that ask for GPU work, and those of them that have a GPU row.

    A memset without a row is no evidence of a cut capture: zero bytes leave none, in every step
    alike. So memsets count only where they have one.

    Args:
        calls: host calls of the process.

    Returns:
        (asked, recorded), one entry per marker.
    """
    if marker is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    asks = pl.col("call").is_in([int(Call.LAUNCH), int(Call.GRAPH_LAUNCH), int(Call.COPY)])
    work = calls.select("t0", "call", "recorded").filter(asks | pl.col("recorded"))
    window = marker.iteration_at(work["t0"].to_numpy())
    recorded = work["recorded"].to_numpy() & (window >= 0)
    count = len(marker.starts)
    asked = np.bincount(window[window >= 0], minlength=count)
    return asked, np.bincount(window[recorded], minlength=count)


def launched_before(windows: GpuWindows, busy: Intervals, launched: Intervals) -> list[float]:
    """Part of the device's busy time in each window that no launch in the capture stands for.

    Args:
        busy: when the device works. launched: when ops run whose launches are in the trace.
    """
    whole, known = per_window(busy, windows.edges), per_window(launched, windows.edges)
    part: list[float] = ((whole - known) / np.maximum(whole, 1)).tolist()
    return part


def waits_of_running(edges: Int64s, waits: Intervals, busy: Intervals) -> Int64s:
    """Idle time of the device in each window inside waits for a loader that runs already, ns.

    The first wait of a trace may be for workers that start, and so may one after a loader has been
    gone through, which shows as one wait more than windows usually have.

    Args:
        edges: of the windows. waits: of the step thread, each for one batch.
        busy: when the device works.
    """
    if not len(waits.t0) or len(edges) < 2:
        return np.zeros(max(len(edges) - 1, 0), dtype=np.int64)
    later = Intervals(waits.t0[1:], waits.t1[1:])
    batches = np.histogram(waits.t0, edges)[0]
    idle = per_window(subtract(later, busy), edges)
    return np.where(batches <= np.median(batches), idle, 0).astype(np.int64)


def skip_reasons(
    windows: GpuWindows,
    marker: StepMarker,
    covered: list[float | None],
    asked: Int64s,
    collectives: Int64s,
    before: list[float],
    waited: Int64s,
) -> list[str | None]:
    """Why each iteration is left out of the summary; None for those that are used.

    Args:
        covered: coverage of each iteration, None where it made no launches.
        asked: calls of each iteration that ask for GPU work.
        collectives: collective kernels launched in each iteration.
        before: of each window, as `launched_before` has it.
        waited: for a loader that runs already, in each window, as `waits_of_running` has it.
    """
    count = len(marker.starts)
    reasons: list[str | None] = [None] * count
    has_window = np.isin(np.arange(count), windows.index)
    for k in range(count):
        share = covered[k]
        if share is not None and share < MIN_COVERAGE:
            reasons[k] = f"capture cut: {percent(share)} of its launches have a GPU row"
        elif not has_window[k]:
            reasons[k] = SKIPPED_AS_EMPTY
    if len(windows.index):
        final = int(windows.index[-1])
        rest = [k for k in windows.index[:-1].tolist() if k != UNKNOWN and reasons[k] is None]
        # What comes between it and the next is not known, so it counts only where few others do.
        if not windows.ends:
            reasons[final] = reasons[final] or "the last iteration has no end"
        elif len(rest) >= ENOUGH:
            reasons[final] = reasons[final] or "the last iteration: the next is not recorded"
    used = [k for k in windows.index.tolist() if k != UNKNOWN and reasons[k] is None]
    part = dict(zip(windows.index.tolist(), before, strict=True))
    # The device runs behind its host: it begins the capture with steps that were launched before.
    behind = [k for k in used if part[k] > 1 - MIN_COVERAGE]
    rest = used[len(behind) :]
    leads = behind == used[: len(behind)]
    if behind and leads and part[used[0]] >= LAUNCHED_BEFORE and len(rest) >= ENOUGH:
        for k in behind:
            reasons[k] = f"{SKIPPED_AS_BEGUN}: {percent(part[k])} of the GPU's time in it"
        used = rest
    if len(used) >= 4:
        first, rest = used[0], used[1:]
        length = dict(zip(windows.index.tolist(), np.diff(windows.edges).tolist(), strict=True))
        lengths = np.array([length[k] for k in rest])
        waits = dict(zip(windows.index.tolist(), waited.tolist(), strict=True))
        if length[first] - waits[first] > max(
            WARM_UP * float(np.median(lengths)), float(lengths.max())
        ):
            reasons[first] = "warm-up: much longer than every other iteration"
        elif (
            len(set(collectives[rest].tolist())) == 1 and collectives[first] != collectives[rest[0]]
        ):
            reasons[first] = "warm-up: another number of collectives than every other iteration"
        elif marker.kind == "kernels" and asked[first] < _WHOLE * asked[rest].min():
            reasons[first] = (
                f"capture cut: {counted(int(asked[first]), 'launch')}, every other iteration has "
                f"{asked[rest].min()} or more"
            )
    return reasons

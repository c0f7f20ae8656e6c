"""The timeline of one device: its windows, partition, busy times, gaps and their causes."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.accounting import MIN_COVERAGE
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind, Operation
from traceprobe.model.events import rows_of
from traceprobe.model.taxonomy import IDLE_CAUSES
from traceprobe.timeline import idle, iterations, partition
from traceprobe.timeline.idle import Gaps
from traceprobe.timeline.intervals import (
    Intervals,
    intersect,
    merge,
    per_window,
    sum_per_window,
    union,
)
from traceprobe.timeline.kernel_speed import SpeedChange, find_speed_change
from traceprobe.timeline.process_timeline import ProcessTimeline

_OTHER_SPEED = {
    True: "the GPU was slower than in most iterations: the same kernels took longer",
    False: "the GPU was faster than in most iterations: the same kernels took less long",
}


class DeviceTimeline(msgspec.Struct, frozen=True):
    """Everything that is known of one device, per window.

    Args:
        edges: window edges, ns on the trace's clock; without usable markers one window that is
            the whole capture.
        index: marker number of each window, UNKNOWN for what lies between iterations; empty for
            the whole capture.
        used: which windows the summary covers.
        reasons: per marker, why it is left out, or None.
        speed: the change of the GPU's speed among the iterations that would count, if any.
        sets: when each class of work runs, and why the device idles. own: the same, each without
            those before it.
        idle: when the device does nothing, between its first operation and its last.
        exclusive: class to ns per window; sums to the window. busy: the same, inclusive.
        observed: classes that the trace can show; the others are null in the report, not 0.
        overlap: kind to ns per window during which compute runs too.
        inferred: part of idle_data_wait per window that no range names.
        host_late_after_sync, sync_cost: ns per window.
        held: part of idle_latency in which the device had its work, and nothing tells what held it
            up; ns per window. 0 in a process of several devices, as one may wait for what is
            launched late on another.
        awaits_device: by cause, when it idles and another device of the process computes what it
            waits for: it has its work, or the host waits.
    """

    process: ProcessTimeline
    device: int
    ops: pl.DataFrame
    edges: Int64s
    index: Int64s
    used: Bools
    reasons: list[str | None]
    speed: SpeedChange | None
    collectives: Int64s
    sets: Mapping[str, Intervals]
    own: Mapping[str, Intervals]
    idle: Intervals
    exclusive: Mapping[str, Int64s]
    busy: Mapping[str, Int64s]
    observed: frozenset[str]
    overlap: Mapping[str, Int64s]
    gaps: Gaps
    gap_causes: list[str]
    inferred: Int64s
    host_late_after_sync: Int64s
    sync_cost: Int64s
    pauses: Int64s
    held: Int64s
    awaits_device: Mapping[str, Intervals]

    def cost_of(self, delays: Intervals) -> Int64s:
        """What the device would idle less without something that delays its host, per window.

        As of calls that wait: in them and until the host is ahead again, and never more than they
        last (`idle.sync_cost`).
        """
        blamed = merge(self.sets["idle_sync"], self.sets["idle_host"])
        cost = idle.sync_cost(self.gaps, self.ops, delays, blamed)
        return sum_per_window(self.gaps.t0, cost, self.edges)


def device_timeline(
    process: ProcessTimeline, device: int, *, on_cpu: bool = False
) -> DeviceTimeline:
    """Timeline of one device of a process; it must have at least one op.

    Args:
        on_cpu: the device is the process's CPU, whose speed varies with whatever else runs there.
    """
    ops = rows_of(process.ops, "device", device)
    iteration, kind, t0, t1 = (ops[c].to_numpy() for c in ("iteration", "kind", "t0", "t1"))
    marker = process.marker
    count = len(marker.starts) if marker else 0
    windows = iterations.gpu_windows(iteration, kind, t0, t1, marker)
    windows = iterations.with_beginnings(
        windows, (iteration, t0, t1), marker, _whole(process), _waits(process)
    )
    windows = iterations.with_its_beginning(windows, ops, marker, process.host.data_annotated)
    comm = (kind == int(Kind.COMM)) & (iteration >= 0)
    collectives = np.bincount(iteration[comm], minlength=count)
    launched = ops["thread"].to_numpy() != UNKNOWN
    busy = union(t0, t1)
    before = iterations.launched_before(windows, busy, union(t0[launched], t1[launched]))
    reasons = _reasons(process, windows, collectives, before, busy)
    regular = [k for k in windows.index.tolist() if k != UNKNOWN and reasons[k] is None]
    speed = None if on_cpu else find_speed_change(ops, np.array(regular, dtype=np.int64))
    if speed is not None:
        for k in speed.left_out:
            reasons[k] = _OTHER_SPEED[k in speed.slow]
    edges, index = windows.edges, windows.index
    if len(index) and reasons[index[-1]] is not None:  # without a known end it gets no account
        edges, index = edges[:-1], index[:-1]
    used = np.array([k != UNKNOWN and reasons[k] is None for k in index.tolist()], dtype=bool)
    if not used.any():
        edges = edges if len(index) else np.array([t0.min(), t1.max()], dtype=np.int64)
    sets = partition.busy_sets(ops, ops["phase"].to_numpy())
    has_others = len(ops) < len(process.ops)
    account = int(edges[0]), int(edges[-1])
    gaps = idle.find_gaps(ops, account, process.host.step_thread, has_others=has_others)
    by_cause = idle.idle_causes(gaps, process.host, process.loaders)
    held = idle.held_up(gaps)
    compute = partition.compute_intervals(sets)
    syncs = process.calls.select("t0", "t1", "blocking").filter("blocking")
    late = idle.idle_after_sync(gaps, ops, syncs["t1"].to_numpy())
    blamed = merge(by_cause["idle_sync"], by_cause["idle_host"])
    waiting = union(syncs["t0"].to_numpy(), syncs["t1"].to_numpy())
    idle_sets = {cause: by_cause[cause] for cause in IDLE_CAUSES}
    with ThreadPoolExecutor(1) as beside:  # most of it leaves Python's lock to others
        claimed = beside.submit(partition.exclusive_sets, {**sets, **idle_sets})
        cost = idle.sync_cost(gaps, ops, waiting, blamed)
        gap_causes = idle.main_causes(gaps, by_cause)
        own = claimed.result()
    return DeviceTimeline(
        process=process,
        device=device,
        ops=ops,
        edges=edges,
        index=index,
        used=used,
        reasons=reasons,
        speed=speed,
        collectives=collectives,
        sets={**sets, **idle_sets},
        own=own,
        idle=merge(*idle_sets.values()),
        exclusive=partition.inclusive(own, edges),
        busy=partition.inclusive(sets, edges),
        observed=_observed(process, sets, idle_sets),
        overlap={
            name: per_window(intersect(sets[name], compute), edges)
            for name in ("communication", "h2d")
        },
        gaps=gaps,
        gap_causes=gap_causes,
        inferred=per_window(by_cause["data_inferred"], edges),
        host_late_after_sync=per_window(late, edges),
        sync_cost=sum_per_window(gaps.t0, cost, edges),
        pauses=per_window(intersect(by_cause["idle_host"], process.host.quiet.host), edges),
        held=np.zeros_like(edges[1:]) if has_others else per_window(held, edges),
        awaits_device=_awaits(process, device, held, by_cause) if has_others else {},
    )


def _awaits(
    process: ProcessTimeline, device: int, held: Intervals, by_cause: Mapping[str, Intervals]
) -> dict[str, Intervals]:
    """`DeviceTimeline.awaits_device` of a process of several devices; empty without handing over.

    Args:
        held: when it has its work and does not begin it.
    """
    if not _hands_over(process):
        return {}
    waits = {
        "idle_latency": held,
        "idle_sync": by_cause["idle_sync"],
        "idle_host": intersect(by_cause["idle_host"], _reading(process)),
    }
    elsewhere = _computing(process, device)
    return {cause: intersect(part, elsewhere) for cause, part in waits.items()}


def _hands_over(process: ProcessTimeline) -> bool:
    """Whether devices of a process hand each other data in most iterations, as by turns they do.

    Where none does, as one that trains two models, they do not wait for each other.
    """
    copied = process.ops.filter(pl.col("operation") == int(Operation.COPY))["iteration"].unique()
    count = 1 if process.marker is None else len(process.marker.starts)
    return 2 * len(copied) >= max(count, 1) and len(copied) > 0


def _reading(process: ProcessTimeline) -> Intervals:
    """When the host is in a call that copies to it and returns once the copy has ended."""
    copies = process.ops.filter(
        (pl.col("kind") == int(Kind.D2H)) & (pl.col("launch_t1") >= pl.col("t1"))
    )
    return union(copies["launch_t0"].to_numpy(), copies["launch_t1"].to_numpy())


def _computing(process: ProcessTimeline, device: int) -> Intervals:
    """When any other device of a process computes."""
    kernels = pl.col("kind") == int(Kind.KERNEL)
    others = process.ops.filter((pl.col("device") != device) & kernels)
    return union(others["t0"].to_numpy(), others["t1"].to_numpy())


def _whole(process: ProcessTimeline) -> Bools:
    """Which iterations have all that they launched."""
    whole: Bools = process.recorded >= MIN_COVERAGE * process.asked
    return whole


def _waits(process: ProcessTimeline) -> Intervals:
    """When the host waits for data, whatever tells."""
    return merge(process.host.data_annotated, process.host.data_inferred)


def _reasons(
    process: ProcessTimeline,
    windows: iterations.GpuWindows,
    collectives: Int64s,
    before: list[float],
    busy: Intervals,
) -> list[str | None]:
    if process.marker is None:
        return []
    covered = [
        recorded / asked if asked else None
        for asked, recorded in zip(process.asked.tolist(), process.recorded.tolist(), strict=True)
    ]
    waited = iterations.waits_of_running(windows.edges, process.host.data_annotated, busy)
    return iterations.skip_reasons(
        windows, process.marker, covered, process.asked, collectives, before, waited
    )


def _observed(
    process: ProcessTimeline, sets: Mapping[str, Intervals], causes: Mapping[str, Intervals]
) -> frozenset[str]:
    """Classes that occur, and idle causes that the trace could have shown had they occurred."""
    host = process.host
    seen = {name for name, intervals in (*sets.items(), *causes.items()) if len(intervals.t0)}
    has_host = bool(len(process.calls) or len(process.ranges))
    if has_host:
        seen |= {"idle_host", "idle_latency", "idle_unexplained"}
    if len(process.calls):
        seen |= {"idle_sync"}
    if len(merge(host.data_annotated, host.data_inferred).t0):
        seen |= {"idle_data_wait"}
    if len(host.profiler.t0):
        seen |= {"idle_profiler"}
    return frozenset(seen)

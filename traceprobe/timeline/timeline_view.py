"""One iteration as lanes of segments: what a person looks at to believe the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.model.events import UNKNOWN, Bools, Int64s
from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.partition import TRANSFER_KINDS
from traceprobe.timeline.rank_collectives import summary_windows

PIXELS = 1200
_KIND_LABEL = {int(kind): name for name, kinds in TRANSFER_KINDS.items() for kind in kinds}


@dataclass(frozen=True)
class Lane:
    """One lane: arrays of equal length, times on the trace's clock."""

    name: str
    t0: Int64s
    t1: Int64s
    label: list[str]
    detail: list[str]


@dataclass(frozen=True)
class TimelineView:
    """A window and its lanes; `merged` ops were joined with a neighbour less than a pixel away."""

    index: int | None
    t0: int
    t1: int
    lanes: list[Lane]
    merged: int


def representative_window(timeline: DeviceTimeline) -> int:
    """Number of the used window whose partition, in shares, is most like that of all used windows.

    Neither the median nor the mean length will do: loader stalls come in bursts, and a window
    without one would show a healthy step.
    """
    parts = np.stack(list(timeline.exclusive.values())).astype(np.float64)
    length = np.maximum(parts.sum(axis=0), 1.0)
    candidates = summary_windows(timeline)
    whole = parts[:, candidates].sum(axis=1) / length[candidates].sum()
    distance = np.abs(parts[:, candidates] / length[candidates] - whole[:, None]).sum(axis=0)
    return int(candidates[np.argmin(distance)])


def longest_window(timeline: DeviceTimeline) -> int | None:
    """Number of the longest used window; None where there are none to choose from."""
    used = np.flatnonzero(timeline.used)
    if len(used) < 2:
        return None
    return int(used[np.argmax(np.diff(timeline.edges)[used])])


def timeline_view(timeline: DeviceTimeline, names: Sequence[str], window: int) -> TimelineView:
    """Lanes of a window: the step thread, then each stream."""
    low, high = int(timeline.edges[window]), int(timeline.edges[window + 1])
    pixel = max((high - low) // PIXELS, 1)
    lanes, merged = [_host_lane(timeline, low, high)], 0
    ops = timeline.ops.filter((pl.col("t0") < high) & (pl.col("t1") > low))
    for stream in sorted(ops["stream"].unique().to_list()):
        lane, joined = _stream_lane(
            ops.filter(pl.col("stream") == stream), stream, pixel, low, high, names
        )
        lanes.append(lane)
        merged += joined
    index = int(timeline.index[window]) if len(timeline.index) else None
    return TimelineView(index, low, high, [lane for lane in lanes if len(lane.t0)], merged)


def _host_lane(timeline: DeviceTimeline, low: int, high: int) -> Lane:
    marks = timeline.process.marks
    keep = (
        (marks.t0 < high) & (marks.t1 > low) & (marks.thread == timeline.process.host.step_thread)
    )
    rows = np.flatnonzero(keep)
    outer = rows[marks.t1[rows] >= np.maximum.accumulate(marks.t1[rows])] if len(rows) else rows
    phase = [marks.phase[i] for i in outer.tolist()]
    return Lane(
        "host: step thread",
        np.maximum(marks.t0[outer], low),
        np.minimum(marks.t1[outer], high),
        ["idle_data_wait" if p == "data" else p for p in phase],
        phase,
    )


def _stream_lane(
    ops: pl.DataFrame, stream: int, pixel: int, low: int, high: int, names: Sequence[str]
) -> tuple[Lane, int]:
    t0 = np.maximum(ops["t0"].to_numpy(), low)
    t1 = np.minimum(ops["t1"].to_numpy(), high)
    label = [
        _KIND_LABEL.get(k, COMPUTE_PHASES[p])
        for k, p in zip(ops["kind"].to_list(), ops["phase"].to_list(), strict=True)
    ]
    codes = np.unique(label, return_inverse=True)[1]
    new = _breaks(t0, t1, codes, pixel)
    first = np.flatnonzero(new)
    size = np.diff(np.concatenate([first, [len(t0)]]))
    end = np.maximum.reduceat(t1, first)
    shown = ops[first]
    detail = [
        names[name] + facts if n == 1 else f"{n} ops, first {names[name]}"
        for name, facts, n in zip(
            shown["name"].to_list(), _facts(shown), size.tolist(), strict=True
        )
    ]
    lane = Lane(f"stream {stream}", t0[first], end, [label[i] for i in first.tolist()], detail)
    return lane, int(len(t0) - len(first))


def _facts(ops: pl.DataFrame) -> list[str]:
    """What each op moved, and how long before its start it was launched; empty where unknown."""
    columns = (ops[c].to_list() for c in ("bytes", "thread", "launch_t0", "t0"))
    return [
        (f" · {size / 1e6:.3g} MB" if size > 0 else "")
        + (
            f" · launched {(start - launch) / 1e3:,.0f} µs before"
            if thread != UNKNOWN and launch < start
            else ""
        )
        for size, thread, launch, start in zip(*columns, strict=True)
    ]


def _breaks(t0: Int64s, t1: Int64s, codes: Int64s, pixel: int) -> Bools:
    """Where a new segment begins: another label, or at least a pixel after all before it."""
    reach = np.maximum.accumulate(t1)
    return np.concatenate([[True], (codes[1:] != codes[:-1]) | (t0[1:] - reach[:-1] >= pixel)])

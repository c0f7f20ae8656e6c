"""Cold starts: calls of set-up that keep the GPU waiting, as a process makes them only once.

The first launch of a kernel loads its code, the first product sets up a library, the first large
tensor allocates. Each is a single call that lasts far longer than calls of its name otherwise do.
`torch.compile` compiles at the first call of a model; where it does so again and again, that is no
set-up. Nor are calls that keep the GPU waiting in every iteration alike: so does an allocator that
returns its memory to the device each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.accounting import SET_UP_MEDIANS, SET_UP_NS
from traceprobe.model.codes import UNKNOWN, Call, Int64s
from traceprobe.timeline.idle import Gaps
from traceprobe.timeline.intervals import EMPTY, Intervals, intersect, merge, per_window, union

_FEW = 3
"""Calls of a name that have no usual length; those are compared with all others."""
_ENOUGH = 3
"""Windows that show whether something recurs."""
_RECURS = 0.5
"""What an ordinary window has, as a part of the mean one's, where something recurs."""


class SetUp(NamedTuple):
    """Calls of set-up of one process, and when a device of it idles in them.

    Args:
        calls: rows of HOST_CALLS. compiling: when `torch.compile` compiles.
        idle: the time of the gaps of a device inside either.
    """

    calls: pl.DataFrame
    compiling: Intervals
    idle: Intervals


def find_set_up(
    calls: pl.DataFrame,
    ops: pl.DataFrame,
    compiling: Intervals,
    gaps: Gaps,
    edges: Int64s,
    chosen: Int64s,
    paced: pl.DataFrame,
) -> SetUp:
    """The calls of set-up among those of a process.

    A launch counts where it is the first one of its kernel. One that waits because the queue of
    launches is full does not keep the GPU waiting, so nothing of it is idle.

    Args:
        calls: HOST_CALLS of the process. ops: GPU_OPS of the process.
        compiling: when the process compiles. gaps: those of one device.
        edges: of the windows of that device. chosen: which of them are judged.
        paced: calls with `t0` that set nothing up, as they are known to come in every step.
    """
    idle = Intervals(gaps.t0, gaps.t1)
    if keeps_compiling(compiling, edges, chosen):
        compiling = EMPTY
    slow = _slow_calls(calls, ops).filter(~pl.col("t0").is_in(paced["t0"].implode()))
    again = [
        int(name)
        for (name,), those in slow.filter(pl.col("call") != int(Call.LAUNCH)).group_by("name")
        if _recurs(_inside(those), idle, edges, chosen)
    ]  # a launch that sets up is the first of its kernel
    slow = slow.filter(~pl.col("name").is_in(again))
    return SetUp(slow, compiling, intersect(idle, merge(_inside(slow), compiling)))


def keeps_compiling(compiling: Intervals, edges: Int64s, chosen: Int64s) -> bool:
    """Whether a process still compiles when it should long be warm: again and again.

    Args:
        compiling, edges, chosen: as `find_set_up` takes them.
    """
    compiles = per_window(compiling, edges)[chosen] > 0
    return bool(compiles.sum() >= _ENOUGH and compiles[len(compiles) // 2 :].any())


def _slow_calls(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Calls that last far longer than others of their name; of launches the first of a kernel."""
    length = pl.col("t1") - pl.col("t0")
    asks = ~pl.col("blocking") & ~pl.col("call").is_in([int(Call.SYNC), int(Call.COPY)])
    asking = calls.lazy().filter(asks)
    long = asking.filter(length >= SET_UP_NS).collect()
    if long.is_empty():
        return long
    names = asking.filter(pl.col("name").is_in(long["name"].unique().to_list()))
    usual = names.group_by("name").agg(count=pl.len(), usual=length.median()).collect()
    few = pl.col("count") < _FEW
    if not usual.filter(few).is_empty():
        of_all = asking.select(length.median()).collect().item()
        usual = usual.with_columns(pl.when(few).then(of_all).otherwise("usual").alias("usual"))
    slow = (
        long.join(usual, on="name", maintain_order="left")
        .filter(length >= SET_UP_MEDIANS * pl.col("usual"))
        .select(calls.columns)
    )
    launched = ops.select("name", "launch_t0", "thread").filter(pl.col("thread") != UNKNOWN)
    first = launched.group_by("name").agg(pl.col("launch_t0").min())["launch_t0"]
    began = pl.col("t0")
    # Few calls are slow: looked for among all launches, not the other way round.
    known = launched.filter(pl.col("launch_t0").is_in(slow["t0"].implode()))["launch_t0"]
    again = began.is_in(known.implode()) & ~began.is_in(first.implode())
    return slow.filter(~again)


def _recurs(calls: Intervals, idle: Intervals, edges: Int64s, chosen: Int64s) -> bool:
    """Whether the device idles in calls in an ordinary window about as in the mean one."""
    if len(chosen) < _ENOUGH:
        return False
    waits = per_window(intersect(idle, calls), edges)[chosen]
    return bool(np.median(waits) > _RECURS * waits.mean())


def _inside(calls: pl.DataFrame) -> Intervals:
    return union(calls["t0"].to_numpy(), calls["t1"].to_numpy())

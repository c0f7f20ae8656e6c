"""Cold starts: calls of set-up that keep the GPU waiting, as a process makes them only once.

The first launch of a kernel loads its code, the first product sets up a library, the first large
tensor allocates. Each is a single call that lasts far longer than calls of its name otherwise do.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from traceprobe.model.accounting import SET_UP_MEDIANS, SET_UP_NS
from traceprobe.model.events import UNKNOWN, Call
from traceprobe.timeline.idle import Gaps
from traceprobe.timeline.intervals import EMPTY, Intervals, intersect, union

_FEW = 3
"""Calls of a name that have no usual length; those are compared with all others."""


class SetUp(NamedTuple):
    """Calls of set-up of one process, and when a device of it idles in them.

    Args:
        calls: rows of HOST_CALLS. idle: the time of the gaps of a device inside them.
    """

    calls: pl.DataFrame
    idle: Intervals


def find_set_up(calls: pl.DataFrame, ops: pl.DataFrame, gaps: Gaps) -> SetUp:
    """The calls of set-up among those of a process.

    A launch counts where it is the first one of its kernel. One that waits because the queue of
    launches is full does not keep the GPU waiting, so nothing of it is idle.

    Args:
        calls: HOST_CALLS of the process. ops: GPU_OPS of the process. gaps: those of one device.
    """
    length = pl.col("t1") - pl.col("t0")
    asks = ~pl.col("blocking") & ~pl.col("call").is_in([int(Call.SYNC), int(Call.COPY)])
    asking = calls.lazy().filter(asks)
    long = asking.filter(length >= SET_UP_NS).collect()
    if long.is_empty():
        return SetUp(long, EMPTY)
    names = asking.filter(pl.col("name").is_in(long["name"].unique().to_list()))
    usual = names.group_by("name").agg(count=pl.len(), usual=length.median())
    of_all = asking.select(length.median()).collect().item()
    slow = (
        long.lazy()
        .join(usual, on="name", maintain_order="left")
        .with_columns(
            pl.when(pl.col("count") < _FEW).then(of_all).otherwise("usual").alias("usual")
        )
        .filter(length >= SET_UP_MEDIANS * pl.col("usual"))
        .select(calls.columns)
        .collect()
    )
    launched = ops.filter(pl.col("thread") != UNKNOWN).select("name", "launch_t0")
    first = launched.group_by("name").agg(pl.col("launch_t0").min())["launch_t0"]
    began = pl.col("t0")
    again = began.is_in(launched["launch_t0"].implode()) & ~began.is_in(first.implode())
    slow = slow.filter(~again)
    inside = union(slow["t0"].to_numpy(), slow["t1"].to_numpy())
    return SetUp(slow, intersect(Intervals(gaps.t0, gaps.t1), inside))

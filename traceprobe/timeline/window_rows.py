"""What a window of a device holds, row by row: operations, the partition, the host's threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s, Source
from traceprobe.model.taxonomy import PARTITION, HostKind, Phase, ThreadRole
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import clip
from traceprobe.timeline.partition import class_of_op
from traceprobe.timeline.shown_windows import LONGEST_NS

HOST_KINDS: tuple[HostKind, ...] = ("range", "operator", "call", "wait")
"""What a row of `host_rows` is; `wait` is a call that blocks until the GPU has caught up."""


_MOSTLY = 0.5
"""Part of a thread's operations that are backward, beyond which it is one of autograd."""


class HostThread(NamedTuple):
    """A thread of the host that has to do with the steps."""

    number: int
    role: ThreadRole


def op_rows(
    account: DeviceTimeline, threads: Sequence[HostThread], low: int, high: int
) -> pl.DataFrame:
    """Operations in [low, high), clipped to it, by start.

    Returns:
        `t0`, `t1`, `stream`, `class` (index in `PARTITION`), `name`, `delay` (ns from the start of
        the launch to that of the op, UNKNOWN without one), `thread` (index in `threads`, UNKNOWN
        for others), `bytes`.
    """
    ops = _inside(account.ops, low, high)
    delay = pl.col("t0") - pl.col("launch_t0")
    known = (pl.col("thread") != UNKNOWN) & delay.is_between(0, LONGEST_NS)
    return ops.select(
        pl.col("t0").clip(lower_bound=low),
        pl.col("t1").clip(upper_bound=high),
        "stream",
        class_of_op().alias("class"),
        "name",
        pl.when(known).then(delay).otherwise(UNKNOWN).alias("delay"),
        _place(threads).alias("thread"),
        "bytes",
    ).sort("t0", "t1", maintain_order=True)


def _inside(rows: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """The rows that reach into [low, high)."""
    t0, t1 = rows["t0"].to_numpy(), rows["t1"].to_numpy()
    return rows[np.flatnonzero((t0 < high) & (t1 > low))]


def _place(threads: Sequence[HostThread]) -> pl.Expr:
    """Index in `threads` of the thread of a row, UNKNOWN for one that is not there."""
    numbers = {thread.number: place for place, thread in enumerate(threads)}
    return pl.col("thread").replace_strict(numbers, default=UNKNOWN, return_dtype=pl.Int64)


def part_rows(account: DeviceTimeline, low: int, high: int) -> tuple[Int64s, Int64s]:
    """The partition of [low, high) as stretches that tile it.

    Returns:
        (length, class): ns, and index in `PARTITION`, in the order of time.
    """
    own = {name: clip(each, low, high) for name, each in account.own.items()}
    t0, t1 = (np.concatenate(parts) for parts in zip(*own.values(), strict=True))
    counts = [len(each.t0) for each in own.values()]
    kind = np.repeat([PARTITION.index(name) for name in own], counts)
    order = np.argsort(t0)
    return (t1 - t0)[order], kind[order]


def host_threads(account: DeviceTimeline) -> list[HostThread]:
    """The step thread, those that launch work or load data, in this order."""
    process = account.process
    step = process.host.step_thread
    backward = (pl.col("phase") == int(Phase.BACKWARD)).mean()
    launching = process.ops.select("thread", "phase").filter(
        ~pl.col("thread").is_in([UNKNOWN, step, *process.loaders])
    )
    shares = launching.group_by("thread").agg(backward).sort("thread").rows()
    return [
        *([HostThread(step, "step")] if step != UNKNOWN else []),
        *(HostThread(thread, "autograd") for thread, share in shares if share > _MOSTLY),
        *(HostThread(thread, "loader") for thread in sorted(process.loaders)),
        *(HostThread(thread, "other") for thread, share in shares if share <= _MOSTLY),
    ]


def host_rows(
    account: DeviceTimeline, threads: Sequence[HostThread], low: int, high: int
) -> pl.DataFrame:
    """Ranges, operators and calls of the threads in [low, high), clipped to it.

    Returns:
        `t0`, `t1`, `thread` (index in `threads`), `kind` (index in `HOST_KINDS`), `name`; by start,
        those that enclose others first.
    """
    process = account.process
    waits = pl.when(pl.col("blocking")).then(3).otherwise(2)
    marks = pl.col("source").is_in([int(Source.USER), int(Source.FRAMEWORK)])
    sources = (
        (process.ranges, marks, pl.lit(0)),
        (process.operators, pl.lit(value=True), pl.lit(1)),
        (process.calls, pl.lit(value=True), waits),
    )
    known = pl.col("thread").is_in([thread.number for thread in threads])
    rows = [
        _inside(source, low, high)
        .lazy()
        .filter(known & chosen)
        .select("t0", "t1", "thread", kind.cast(pl.Int64).alias("kind"), "name")
        for source, chosen, kind in sources
    ]
    return (
        pl.concat(rows)
        .with_columns(
            pl.col("t0").clip(lower_bound=low),
            pl.col("t1").clip(upper_bound=high),
            _place(threads),
        )
        .sort("t0", -pl.col("t1"), "kind", maintain_order=True)
        .collect()
    )

"""Windows of a device to the picture of its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from traceprobe.model.codes import Int64s
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.packed import Table
from traceprobe.records.picture import Picture, Thread, Window
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.long_iterations import LongIterations
from traceprobe.timeline.shown_windows import ShownWindow, shown_windows
from traceprobe.timeline.window_rows import (
    HOST_KINDS,
    HostThread,
    host_rows,
    host_threads,
    op_rows,
    part_rows,
)

if TYPE_CHECKING:
    import polars as pl

MOST_HOST_ROWS = 40_000
"""Rows of the host in a window."""
MAX_NAME = 1_000
"""Characters of a name; kernels' run to kilobytes of template arguments."""


def picture(
    account: DeviceTimeline,
    names: Sequence[str],
    thread_names: Mapping[tuple[int, int], str],
    zero: int,
    long: LongIterations | None,
) -> Picture:
    """The windows of a device that a person should see; none where all have damaged times.

    Args:
        names: of the trace. thread_names: by process and thread.
        zero: time zero of the report, ns on the trace's clock.
    """
    shown = shown_windows(account, long)
    threads = host_threads(account)
    tables = [_rows(account, threads, window) for window in shown]
    numbers = _distinct([rows["name"] for ops, host, _ in tables for rows in (ops, host)])
    streams = _distinct([ops["stream"] for ops, _, _ in tables])
    pid = account.process.pid
    return Picture(
        classes=list(PARTITION),
        streams=streams.tolist(),
        threads=[
            Thread(role=thread.role, name=thread_names.get((pid, thread.number), ""))
            for thread in threads
        ],
        names=[names[n][:MAX_NAME] for n in numbers.tolist()],
        kinds=list(HOST_KINDS),
        windows=[
            _window(account, window, zero, rows, streams, numbers)
            for window, rows in zip(shown, tables, strict=True)
        ],
    )


def _distinct(columns: Sequence[pl.Series]) -> Int64s:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(c.to_numpy() for c in columns)]))


def _rows(
    account: DeviceTimeline, threads: list[HostThread], window: ShownWindow
) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Operations, the longest rows of the host, and how many of these are left out."""
    ops = op_rows(account, threads, window.t0, window.t1)
    host = host_rows(account, threads, window.t0, window.t1)
    left_out = max(len(host) - MOST_HOST_ROWS, 0)
    if left_out:
        rank = (host["t1"] - host["t0"]).rank("ordinal")
        host = host.filter(rank > left_out)
    return ops, host, left_out


def _window(
    account: DeviceTimeline,
    window: ShownWindow,
    zero: int,
    rows: tuple[pl.DataFrame, pl.DataFrame, int],
    streams: Int64s,
    numbers: Int64s,
) -> Window:
    ops, host, left_out = rows
    lengths, classes = part_rows(account, window.t0, window.t1)
    return Window(
        why=window.why,
        iteration=window.iteration,
        start_ns=window.t0 - zero,
        duration_ns=window.t1 - window.t0,
        ops=Table.of(
            {
                **_times(ops, window.t0),
                "stream": np.searchsorted(streams, ops["stream"].to_numpy()),
                "class": ops["class"].to_numpy(),
                "name": np.searchsorted(numbers, ops["name"].to_numpy()),
                "launch": ops["delay"].to_numpy() + 1,
                "thread": ops["thread"].to_numpy() + 1,
                "bytes": np.maximum(ops["bytes"].to_numpy(), 0),
                "shared": np.zeros(len(ops), dtype=np.int64),
            }
        ),
        parts=Table.of({"duration": lengths, "class": classes}),
        host=Table.of(
            {
                **_times(host, window.t0),
                "thread": host["thread"].to_numpy(),
                "kind": host["kind"].to_numpy(),
                "name": np.searchsorted(numbers, host["name"].to_numpy()),
            }
        ),
        left_out=left_out,
    )


def _times(rows: pl.DataFrame, start: int) -> dict[str, Int64s]:
    t0, t1 = rows["t0"].to_numpy(), rows["t1"].to_numpy()
    return {"start": np.diff(t0, prepend=start), "duration": t1 - t0}

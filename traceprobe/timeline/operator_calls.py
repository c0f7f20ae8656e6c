"""Calls of each operator of the framework, and what it launches on a device."""

from __future__ import annotations

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.operator_time import begins_inside
from traceprobe.timeline.operators import launching_operators
from traceprobe.timeline.rank_collectives import summary_windows

_LENGTH = pl.col("t1") - pl.col("t0")


def operator_calls(account: DeviceTimeline) -> pl.DataFrame:
    """Operators by name, those of most time on the device first, then of most time on the host.

    A call counts where it begins in an iteration of the summary, an operation where it starts in a
    window: so do calls of CUDA, and kernels.

    Returns:
        `name` (index into the names of the trace), `count`, `host_ns`, inner calls included,
        `operations`, `device_ns`, of what the operator launches itself; no row without operators.
    """
    process = account.process
    calls = process.operators.select("name", "t0", ns=_LENGTH)
    if process.marker is not None and len(account.index):
        at = process.marker.iteration_at(calls["t0"].to_numpy())
        calls = calls.filter(np.isin(at, account.index[summary_windows(account)]))
    called = calls.group_by(pl.col("name").cast(pl.Int64)).agg(
        count=pl.len().cast(pl.Int64), host_ns=pl.col("ns").sum()
    )
    columns = ("t0", "t1", "thread", "launch_t0")
    inside = account.ops.select(columns).filter(
        begins_inside(account, account.ops["t0"].to_numpy())
    )
    launched = (
        inside.select(name=pl.Series(launching_operators(inside, process.operators)), ns=_LENGTH)
        .filter(pl.col("name") != UNKNOWN)
        .group_by("name")
        .agg(operations=pl.len().cast(pl.Int64), device_ns=pl.col("ns").sum())
    )
    return (
        called.join(launched, on="name", how="full", coalesce=True)
        .fill_null(0)
        .sort("device_ns", "host_ns", "name", descending=[True, True, False])
    )

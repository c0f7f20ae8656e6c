"""Whether a trace that was read can be accounted for, device by device and stream by stream."""

from __future__ import annotations

import polars as pl

from traceprobe.errors import DamagedInput
from traceprobe.ingest.limits import Limits
from traceprobe.model.events import Trace

_MOST_NS = 2.0**62
"""Sums of durations are int64s, too."""


def check_trace_size(trace: Trace, limits: Limits) -> None:
    """Stop where a trace has more devices or streams than accounting them one by one allows.

    Raises:
        DamagedInput: with the option that allows more.
    """
    name = trace.origin.name
    limits.check("devices", len(trace.devices), name)
    streams = trace.gpu_ops.select("pid", "device", "stream").unique().group_by("pid", "device")
    limits.check("streams", int(streams.len()["len"].max() or 0), name)  # type: ignore[arg-type]
    for rows in (trace.host_calls, trace.host_ranges):
        limits.check("threads", rows["thread"].n_unique(), name)
    for rows in (trace.gpu_ops, trace.host_calls, trace.host_ranges):
        together = (rows["t1"].cast(pl.Float64) - rows["t0"].cast(pl.Float64)).sum()
        if together > _MOST_NS:
            raise DamagedInput(
                f"{name}: its events take more than a century together, as those of no run do; "
                "capture or copy the trace again"
            )

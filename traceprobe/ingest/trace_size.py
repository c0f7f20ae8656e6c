"""Whether a trace that was read can be accounted for, device by device and stream by stream."""

from __future__ import annotations

import numpy as np

from traceprobe.errors import DamagedInput
from traceprobe.ingest.joins import distinct_rows
from traceprobe.ingest.limits import Limits
from traceprobe.model.events import Trace
from traceprobe.model.numbering import numbered

_MOST_NS = 2.0**62
"""Sums of durations are int64s, too."""


def check_trace_size(trace: Trace, limits: Limits) -> None:
    """Stop where a trace has more devices or streams than accounting them one by one allows.

    Raises:
        DamagedInput: with the option that allows more.
    """
    name = trace.origin.name
    limits.check("devices", len(trace.devices), name)
    pid, device, stream = (trace.gpu_ops[c].to_numpy() for c in ("pid", "device", "stream"))
    places = np.stack(distinct_rows(pid, device, stream)[:2])
    limits.check(
        "streams", int(np.unique(places, axis=1, return_counts=True)[1].max(initial=0)), name
    )
    for rows in (trace.host_calls, trace.host_ranges):
        limits.check("threads", len(numbered(rows["thread"].to_numpy())[0]), name)
    for rows in (trace.gpu_ops, trace.host_calls, trace.host_ranges):
        lasting = np.subtract(rows["t1"].to_numpy(), rows["t0"].to_numpy(), dtype=np.float64)
        if lasting.sum() > _MOST_NS:
            raise DamagedInput(
                f"{name}: its events take more than a century together, as those of no run do; "
                "capture or copy the trace again"
            )

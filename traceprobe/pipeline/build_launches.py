"""Launches of a device and its launch queue, to the record of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from traceprobe.records.launches import Launches, LaunchQueue
from traceprobe.timeline.launches import launch_times, queue_times

if TYPE_CHECKING:
    import polars as pl

    from traceprobe.model.codes import Int64s
    from traceprobe.timeline.device_timeline import DeviceTimeline


def launches(account: DeviceTimeline, chosen: Int64s, inside: pl.DataFrame) -> Launches | UnsetType:
    """Calls, delays and the queue; UNSET where no launch is known.

    Args:
        chosen: indices of the windows that the summary covers. inside: the ops that start in them.
    """
    times = launch_times(inside)
    queue = queue_times(account.ops, account.edges, chosen, account.idle)
    if times is None or queue is None:
        return UNSET
    call, delay = ([round(ns / 1e3, 3) for ns in each] for each in (times.call_ns, times.delay_ns))
    return Launches(
        count=times.count,
        call_us_p50=call[0],
        call_us_p90=call[1],
        delay_us_p50=delay[0],
        delay_us_p90=delay[1],
        outlasting=times.outlasting,
        queue=LaunchQueue(
            p50=queue.p50,
            p90=queue.p90,
            longest=queue.longest,
            empty_ns=queue.empty_ns,
            starved_ns=queue.starved_ns,
        ),
    )

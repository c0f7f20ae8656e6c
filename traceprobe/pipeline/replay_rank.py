"""The iterations of a device that can be played again, to the record of the report."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from traceprobe.model.events import Int64s
from traceprobe.records.replay import Replay
from traceprobe.timeline import replay
from traceprobe.timeline.device_timeline import DeviceTimeline


def record(account: DeviceTimeline) -> Replay | UnsetType:
    """The last used iterations of a device; UNSET where there are too few, or no launches."""
    rows = replay.rows(account)
    if rows is None:
        return UNSET
    return Replay(
        iterations=int(rows.iteration[-1]) + 1,
        latency_ns=rows.latency,
        kinds=list(replay.KINDS),
        iteration=_column(rows.iteration),
        kind=_column(rows.kind),
        stream=_column(rows.stream),
        first_host_ns=_column(rows.first),
        host_ns=_column(rows.host),
        duration_ns=_column(rows.busy),
        lag_ns=_column(rows.lag),
        tail_ns=_column(rows.tail),
        data_wait_ns=_column(rows.data),
        awaits=_column(rows.awaits),
        needs=_column(rows.needs),
        bytes=_column(rows.size),
    )


def _column(values: Int64s) -> str:
    return " ".join(map(str, values.tolist()))

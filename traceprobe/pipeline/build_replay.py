"""The iterations of a device that can be simulated, to the record of the report."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from traceprobe.records.replay import COLUMNS, Replay
from traceprobe.timeline import replay
from traceprobe.timeline.device_timeline import DeviceTimeline


def build_replay(account: DeviceTimeline) -> Replay | UnsetType:
    """The last used iterations of a device; UNSET where there are too few, or no launches."""
    schedule = replay.schedule(account)
    if schedule is None:
        return UNSET
    columns = {name: schedule.columns[name].to_list() for name in COLUMNS}
    return Replay(
        iterations=columns["iteration"][-1] + 1,
        latency_ns=schedule.latency_ns,
        kinds=list(replay.KINDS),
        **columns,
    )

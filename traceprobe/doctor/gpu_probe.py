"""What each GPU of this machine does now, by the driver's management library."""

from __future__ import annotations

import json
import sys

from traceprobe.capture.machine.clock_readings import reason_names
from traceprobe.capture.machine.nvml import Nvml, NvmlDevice, NvmlMissing


def main() -> None:
    """Print a JSON list with an object a GPU; run in a process of its own, since a driver hangs."""
    try:
        devices = Nvml().devices()
    except NvmlMissing:
        return
    json.dump([_describe(device) for device in devices], sys.stdout)


def _describe(device: NvmlDevice) -> dict[str, object]:
    now = device.read()
    processes = device.processes()
    return {
        "sm_mhz": now.sm_mhz,
        "most_sm_mhz": device.most_sm_mhz(),
        "power_w": now.power_w,
        "power_limit_w": device.power_limit_w(),
        "temperature_c": now.temperature_c,
        "busy_percent": now.busy_percent,
        "throttled": reason_names(now.reasons),
        "persistent": device.persistent(),
        "processes": None if processes is None else len(processes),
        "memory_bytes": sum(p.memory_bytes or 0 for p in processes or ()),
    }

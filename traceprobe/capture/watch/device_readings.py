"""What the device's clock does, for the readings of a run."""

from __future__ import annotations

import sys
from typing import Any

from traceprobe.capture.machine.clock_readings import reason_names
from traceprobe.capture.machine.device_clock import DeviceClock


class DeviceReadings:
    """The device that this process computes on.

    Args:
        seconds: between two readings.
    """

    def __init__(self, seconds: float) -> None:
        self.name = _name()
        self._clock = DeviceClock.start(interval_ms=seconds * 1e3)

    def read(self) -> dict[str, Any]:
        """The last reading, by the names of `traceprobe.model.sidecar.BlockClock`."""
        reading = self._clock.latest
        if reading is None:
            return {}
        return {
            "sm_mhz": reading.sm_mhz,
            "power_w": reading.power_w,
            "temperature_c": reading.temperature_c,
            "others_percent": reading.others_percent,
            "throttled": reason_names(reading.reasons),
        }

    def end(self) -> None:
        """Read no more."""
        self._clock.stop()


def _name() -> str | None:
    """The current device of PyTorch; None on a CPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return str(cuda.get_device_name())

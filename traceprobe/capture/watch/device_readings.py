"""What the device's clock does, for the readings of a run."""

from __future__ import annotations

import sys
from typing import Any


class DeviceReadings:
    """The device that this process computes on."""

    def __init__(self) -> None:
        self.name = _name()

    def read(self) -> dict[str, Any]:
        """The device now, by the fields of `traceprobe.model.sidecar.BlockClock`."""
        return {}

    def end(self) -> None:
        """Read no more."""


def _name() -> str | None:
    """The current device of PyTorch; None on a CPU."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return str(cuda.get_device_name())

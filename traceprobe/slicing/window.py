"""Which part of a trace a slice keeps."""

from __future__ import annotations

import msgspec

from traceprobe.model.events import Trace


class Window(msgspec.Struct, frozen=True):
    """Host time of the kept steps of one process, ns on the trace's clock, [low, high).

    `gpu_low`, `gpu_high` bound the work that was launched in it, for rows without a launch.
    """

    low: int
    high: int
    gpu_low: int
    gpu_high: int


class SlicePlan(msgspec.Struct, frozen=True):
    """What to keep of a trace. `note` is written into the slice."""

    trace: Trace
    windows: dict[int, Window]
    note: dict[str, object]

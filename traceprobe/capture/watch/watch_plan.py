"""What `traceprobe watch` hands to the processes it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceprobe.capture.process.environment import Plan


@dataclass(frozen=True)
class WatchPlan(Plan):
    """How a whole run is watched.

    Args:
        clock_seconds: time between two readings of the device's clock.
        captures: short captures with a profiler, at most.
        every: steps between two of them; 0 where only slow steps cause them.
        watcher: process that tells of the run in the end; 0 where nobody knows.
    """

    VARIABLE: ClassVar[str] = "TRACEPROBE_WATCH"

    clock_seconds: float = 0.5
    captures: int = 0
    every: int = 0
    watcher: int = 0

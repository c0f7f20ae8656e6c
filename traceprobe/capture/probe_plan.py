"""What `traceprobe bench --causal` hands to the processes it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceprobe.capture.environment import Plan


@dataclass(frozen=True)
class ProbePlan(Plan):
    """Delays put into the regions of a running program, a block of steps each.

    Args:
        rounds: blocks of each region and delay; they take turns.
        seconds: how long a block should take; decides the number of its steps.
    """

    VARIABLE: ClassVar[str] = "TRACEPROBE_PROBES"

    rounds: int = 5
    seconds: float = 0.5

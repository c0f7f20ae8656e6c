"""What to record, handed from `traceprobe profile` to the processes it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from traceprobe.capture.environment import Plan

METADATA_KEY = "traceprobe"
"""Top-level key of a Kineto trace, and table of an Nsight export, that holds the sidecar."""


@dataclass(frozen=True)
class RecordingPlan(Plan):
    """Steps of a recording, in order: warm-up, calibration, settling, active.

    Args:
        calibrate: steps timed without a profiler, synchronised only at both ends.
        settle: steps under the profiler that are thrown away.
        active: steps that are kept; one more is recorded, because the last has no end.
        shapes, stacks, memory: what torch.profiler records besides; each slows the host.
        simulate: whether the loop may be given tensors without data, to predict its memory.
        blame: whether names of lines, modules and shapes are recorded in steps after these.
    """

    VARIABLE: ClassVar[str] = "TRACEPROBE_PLAN"

    backend: Literal["torch", "nsys"] = "torch"
    calibrate: int = 20
    settle: int = 2
    active: int = 8
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    simulate: bool = False
    blame: bool = False

    @property
    def steps(self) -> int:
        """Steps that the timed recording takes in all."""
        return self.warmup + self.calibrate + self.settle + self.active + 1

    @property
    def drains(self) -> tuple[int, int]:
        """Steps before which the loader's queue is emptied: each is followed by untimed steps.

        Queues fill up while the first steps compile and the profiler starts. A measurement that
        begins with full ones sees a faster loader than the run has.
        """
        return max(self.warmup - 2, 0), self.warmup + self.calibrate


def trace_name(rank: int) -> str:
    """File name of a rank's Kineto trace."""
    return f"rank{rank}.json.gz"


def sidecar_name(rank: int) -> str:
    """File name of a rank's calibration, also inside its trace."""
    return f"rank{rank}.traceprobe.json"

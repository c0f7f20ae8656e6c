"""What to record, handed from `traceprobe profile` to the processes it starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from traceprobe.capture.process.environment import Plan

METADATA_KEY = "traceprobe"
"""Top-level key of a Kineto trace, and table of an Nsight export, that holds the sidecar."""
LEAD_IN = 2
"""Steps before an unprofiled block that are not timed, at least: a profiler ended."""


SHORTER = ((5, 14, 8), (5, 10, 6), (3, 6, 4), (2, 4, 3), (1, 2, 3))
"""Warm-up, calibration and kept steps of short programs, the longest first: three are the fewest
that tell how much a step varies."""


@dataclass(frozen=True)
class RecordingPlan(Plan):
    """A recording in order: warm-up, unprofiled block, profiled block, unprofiled block, names.

    Args:
        warmup: fewest steps of the warm-up, which goes on until the loop is steady.
        most_warmup: its most steps; where they are no more than `warmup`, the number is fixed.
        calibrate: steps timed without a profiler, half of them before and half after the profiled
            ones, synchronised only at both ends of a block.
        settle: steps under the profiler that are thrown away.
        active: steps that are kept; one more is recorded, because the last has no end.
        repeats: times that the profiled block may be made again where the pace or the clock changed
            around it.
        shapes, stacks, memory: what torch.profiler records besides; each slows the host.
        simulate: whether the loop may be given tensors without data, to predict its memory.
        root: the process that all those of the program come from; 0 for each by itself.
        blame: whether names of lines, modules and shapes are recorded in steps after these.
    """

    VARIABLE: ClassVar[str] = "TRACEPROBE_PLAN"

    backend: Literal["torch", "nsys"] = "torch"
    most_warmup: int = 100
    calibrate: int = 20
    settle: int = 2
    active: int = 8
    repeats: int = 2
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    simulate: bool = False
    root: int = 0
    blame: bool = False

    @property
    def steps(self) -> int:
        """Steps that the timed recording takes, at least."""
        unprofiled = LEAD_IN + self.calibrate_before + LEAD_IN + self.calibrate_after
        return self.warmup + unprofiled + self.settle + self.active + 1

    def shortened(self, steps: int) -> RecordingPlan | None:
        """A shorter plan that so many steps are enough for; None where there is none."""
        plans = (
            replace(
                self,
                warmup=min(self.warmup, warmup),
                most_warmup=min(self.warmup, warmup),
                calibrate=min(self.calibrate, calibrate),
                active=min(self.active, active),
            )
            for warmup, calibrate, active in SHORTER
        )
        most = min(steps, self.steps - 1)
        return next((plan for plan in plans if plan.steps <= most), None)

    @property
    def calibrate_before(self) -> int:
        """Steps of the unprofiled block before the profiled one."""
        return self.calibrate - self.calibrate_after

    @property
    def calibrate_after(self) -> int:
        """Steps of the unprofiled block after the profiled one."""
        return max(self.calibrate // 2, 1)

    @property
    def most_repeats(self) -> int:
        """Times that the profiled block can be made again; nsys opens its capture range once."""
        return 0 if self.backend == "nsys" else self.repeats


def trace_name(rank: int) -> str:
    """File name of a rank's Kineto trace."""
    return f"rank{rank}.json.gz"


def sidecar_name(rank: int) -> str:
    """File name of a rank's calibration, also inside its trace."""
    return f"rank{rank}.traceprobe.json"

"""What callers say about an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traceprobe.errors import UsageError
from traceprobe.ingest.limits import Limits
from traceprobe.model.sidecar import MOST_FLOPS, STEP_MS
from traceprobe.records.ablation import Ablation
from traceprobe.records.causal import Causal
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.verdict.thresholds import Thresholds


@dataclass(frozen=True)
class Options:
    """How to analyse.

    Args:
        step: regular expression of the step ranges; None looks for them.
        phases: phase name to regular expression, before the built-in table
            (`traceprobe.timeline.phases.RANGE_NAMES` lists the names).
        steps: use only iterations with first <= index < last.
        rank: use only this rank.
        unprofiled_step_ms: step time without a profiler, in ms; corrects the observer effect.
        thresholds: the numbers that the verdict depends on.
        limits: what a file may hold before it is refused.
        ablation: what `traceprobe bench` measured of the same run; becomes part of the report.
        causal: what `traceprobe bench --causal` measured of it; becomes part of the report.
        flops_per_step: operations of the model in a step of all ranks, where the recording does not
            say.
        peaks: what `traceprobe roofline --measure` measured of the device.
        nccl_records: dumps of PyTorch's flight recorder and logs of NCCL Inspector of the same run,
            by rank.

    Raises:
        UsageError: a number is none that a step has.
    """

    step: str | None = None
    phases: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    rank: int | None = None
    unprofiled_step_ms: float | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    limits: Limits = field(default_factory=Limits)
    ablation: Ablation | None = None
    causal: Causal | None = None
    flops_per_step: float | None = None
    peaks: MeasuredPeaks | None = None
    nccl_records: Mapping[int, Sequence[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        step_ms, flops = self.unprofiled_step_ms, self.flops_per_step
        if step_ms is not None and not STEP_MS[0] <= step_ms <= STEP_MS[1]:
            raise UsageError(
                f"--unprofiled-step-ms {str(step_ms)[:60]}: must be a positive number of "
                "milliseconds, from 0.001 to 86,400,000"
            )
        if flops is not None and not 1 <= flops <= MOST_FLOPS:
            raise UsageError(
                f"--flops-per-step {str(flops)[:60]}: must be a positive number of operations, "
                "from 1 to 1e30"
            )

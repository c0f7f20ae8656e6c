"""What to ablate, handed from `traceprobe bench` to the processes it starts, and their trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from traceprobe.capture.process.environment import Plan
from traceprobe.capture.process.rank_results import RankMeasurements


@dataclass(frozen=True)
class AblationPlan(Plan):
    """Trials of an ablation; every variant has as many, and they take turns.

    Args:
        count: trials of each variant.
        seconds: how long a trial should take; decides the number of its steps.
    """

    VARIABLE: ClassVar[str] = "TRACEPROBE_TRIALS"

    count: int = 5
    seconds: float = 1.0


def short_ablation(warmup: int, workload: dict[str, Any]) -> AblationPlan:
    """Few and short trials, for an ablation on the way to a recording."""
    return AblationPlan(warmup=warmup, workload=workload, count=3, seconds=0.7)


@dataclass(frozen=True)
class RankTrials(RankMeasurements):
    """What one rank measured.

    Args:
        seconds: duration of each trial, by variant.
        busy_ns: busy time of the GPU per synthetic step, collectives left out; None without a GPU.
        collectives: whether the ranks still communicated in those steps.
    """

    NAME: ClassVar[str] = "trials"

    seconds: dict[str, list[float]]
    busy_ns: float | None
    collectives: bool

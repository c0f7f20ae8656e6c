"""What to ablate, handed from `traceprobe bench` to the processes it starts, and their trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from traceprobe.capture.environment import Plan
from traceprobe.capture.rank_results import RankResult


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
class RankTrials(RankResult):
    """What one rank measured.

    Args:
        seconds: duration of each trial, by variant. steps: steps of each of its trials.
        absent: variants that could not be measured, and why.
        busy_ns: busy time of the GPU per synthetic step, collectives left out; None without a GPU.
        collectives: whether the ranks still communicated in those steps.
        workload, hardware, libraries, flags: as in the calibration of a recording.
    """

    NAME: ClassVar[str] = "trials"

    seconds: dict[str, list[float]]
    steps: dict[str, int]
    absent: dict[str, str]
    busy_ns: float | None
    collectives: bool
    workload: dict[str, Any]
    hardware: dict[str, Any]
    libraries: dict[str, Any]
    flags: dict[str, Any]

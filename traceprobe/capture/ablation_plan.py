"""What to ablate, handed from `traceprobe bench` to the processes it starts, and their trials."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from traceprobe.capture.environment import Plan
from traceprobe.capture.progress import current_rank, write_result


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
class RankTrials:
    """What one rank measured.

    Args:
        seconds: duration of each trial, by variant. steps: steps of each of its trials.
        absent: variants that could not be measured, and why.
        busy_ns: busy time of the GPU per synthetic step, collectives left out; None without a GPU.
        collectives: whether the ranks still communicated in those steps.
        workload, hardware, libraries, flags: as in the calibration of a recording.
    """

    seconds: dict[str, list[float]]
    steps: dict[str, int]
    absent: dict[str, str]
    busy_ns: float | None
    collectives: bool
    workload: dict[str, Any]
    hardware: dict[str, Any]
    libraries: dict[str, Any]
    flags: dict[str, Any]

    def save(self, folder: Path) -> None:
        """Leave the results of this rank in the folder, whole or not at all."""
        text = json.dumps(asdict(self), sort_keys=True)
        write_result(folder / f"rank{current_rank()}.trials.json", text)


@dataclass(frozen=True)
class Shortfall:
    """A loop that ended before its trials did.

    Args:
        steps: that it made. needed: by the trials; None where it ended before that was known.
    """

    steps: int
    needed: int | None

    def save(self, folder: Path) -> None:
        """Leave it in the folder, for the process that started the program."""
        write_result(folder / f"rank{current_rank()}.short.json", json.dumps(asdict(self)))


def shortfall(folder: Path) -> Shortfall | None:
    """What the first rank left that ended too early."""
    paths = sorted(folder.glob("rank*.short.json"))
    return Shortfall(**json.loads(paths[0].read_text())) if paths else None


def trial_results(folder: Path) -> dict[int, RankTrials]:
    """What the ranks left in the folder, by rank."""
    return {
        int(path.name.removeprefix("rank").split(".")[0]): RankTrials(
            **json.loads(path.read_text())
        )
        for path in sorted(folder.glob("rank*.trials.json"))
    }

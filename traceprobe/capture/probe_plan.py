"""What `traceprobe bench --causal` hands to the processes it starts, and what they measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from traceprobe.capture.environment import Plan
from traceprobe.capture.progress import current_rank, write_result


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


@dataclass(frozen=True)
class RankProbes:
    """What one rank measured.

    Args:
        step_s: seconds of a step in each block, by condition; see `program_probes`.
        given_s: seconds of delay a step that were given in each of them; none for conditions
            without a delay.
        steps: steps of a block, by condition.
        absent: regions that could not be probed, and why.
        workers: processes that load batches; 0 for none.
        workload, hardware, libraries, flags: as in the calibration of a recording.
    """

    step_s: dict[str, list[float]]
    given_s: dict[str, list[float]]
    steps: dict[str, int]
    absent: dict[str, str]
    workers: int
    workload: dict[str, Any]
    hardware: dict[str, Any]
    libraries: dict[str, Any]
    flags: dict[str, Any]

    def save(self, folder: Path) -> None:
        """Leave the results of this rank in the folder, whole or not at all."""
        text = json.dumps(asdict(self), sort_keys=True)
        write_result(folder / f"rank{current_rank()}.probes.json", text)


def probe_results(folder: Path) -> dict[int, RankProbes]:
    """What the ranks left in the folder, by rank."""
    return {
        int(path.name.removeprefix("rank").split(".")[0]): RankProbes(
            **json.loads(path.read_text())
        )
        for path in sorted(folder.glob("rank*.probes.json"))
    }

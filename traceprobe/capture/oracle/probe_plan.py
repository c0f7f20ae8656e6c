"""What `traceprobe bench --causal` hands to the processes it starts, and what they measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceprobe.capture.process.environment import Plan
from traceprobe.capture.process.rank_results import RankMeasurements


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
class RankProbes(RankMeasurements):
    """What one rank measured.

    Args:
        step_s: seconds of a step in each block, by condition; see `program_probes`.
        given_s: seconds of delay a step that were given in each of them; none for conditions
            without a delay.
        workers: processes that load batches; 0 for none.
    """

    NAME: ClassVar[str] = "probes"

    step_s: dict[str, list[float]]
    given_s: dict[str, list[float]]
    workers: int

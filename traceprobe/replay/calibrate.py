"""Makes the replay of the unchanged run take as long as the run took without a profiler.

A profiler slows the host, and collectives with it, but not kernels. So where the unprofiled step is
known, the host's time is scaled until the replay agrees; where the host does not matter, exposed
collectives are. What is then left is a factor on every prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceprobe.replay.scenario import hosted, scaled
from traceprobe.replay.simulate import simulate, simulate_all
from traceprobe.replay.tasks import RankSchedule

AGREES = 0.002
"""Relative difference below which nothing is scaled."""
MOST_HOST, MOST_COLLECTIVES = 2.0, 3.0
GRIDS, PARTS = 3, 8
PROFILED_HOST = {"kineto": 0.55, "nsys": 0.85}
"""What host time between launches is without the profiler, by the format that it writes, where the
run itself cannot tell. See docs/whatif.md for the runs that it was measured on."""


@dataclass(frozen=True)
class Calibrated:
    """The schedules to be changed.

    Args:
        factor: what all predictions are multiplied by. host, collectives: factors on their times.
        played_ns: the step before anything was scaled.
        host_known: whether the unchanged run depends on the host, so that its factor is measured.
    """

    schedules: Sequence[RankSchedule]
    factor: float
    host: float
    collectives: float
    host_known: bool
    played_ns: float


def calibrate(
    schedules: Sequence[RankSchedule], step_ns: float, profiled_host: float
) -> Calibrated:
    """The schedules, scaled so that they take `step_ns`.

    Args:
        profiled_host: factor on the host's time where the step does not depend on it.
    """

    def with_host(factor: float) -> list[RankSchedule]:
        return [replace(p, tasks=hosted(p.tasks, factor)) for p in schedules]

    as_it_is, low, high = simulate_all([schedules, with_host(0.0), with_host(MOST_HOST)])
    reached = min(max(low, step_ns), high)
    most = _solve(with_host, reached, MOST_HOST)
    # Only where a faster host makes a shorter step is the largest factor that of the host.
    faster = simulate(with_host(0.9 * most))
    known = low < step_ns <= high and faster < (1 - AGREES) * step_ns
    host = most if known else min(most, profiled_host)
    chosen, collectives = with_host(host), 1.0
    if not known:
        chosen, collectives = _with_collectives(chosen, step_ns)
    factor = step_ns / simulate(chosen)
    return Calibrated(chosen, factor, host, collectives, known, as_it_is)


def _with_collectives(
    schedules: list[RankSchedule], step_ns: float
) -> tuple[list[RankSchedule], float]:
    """The schedules with collectives scaled, where that makes them take `step_ns`, and by what."""

    def slowed(factor: float) -> list[RankSchedule]:
        return [
            replace(p, tasks=scaled(p.tasks, p.tasks.of(("communication",)), factor))
            for p in schedules
        ]

    now, low, high = simulate_all([schedules, slowed(0.0), slowed(MOST_COLLECTIVES)])
    if abs(now / step_ns - 1) <= AGREES or not low < step_ns < high:
        return schedules, 1.0
    factor = _solve(slowed, step_ns, MOST_COLLECTIVES)
    return slowed(factor), factor


def _solve(scenario: Callable[[float], list[RankSchedule]], target: float, most: float) -> float:
    """The largest factor up to `most` with which a step does not exceed the target.

    All factors of a grid are played at once; a finer one follows between the two that matter. The
    length of ways is linear in a factor while they stay the same, as they do between such two.
    """
    low, high, reached = 0.0, most, target * (1 + AGREES / 10)
    for _ in range(GRIDS):
        factors = np.linspace(low, high, PARTS + 1)
        steps = np.array(simulate_all([scenario(factor) for factor in factors]))
        at = int(np.flatnonzero(steps <= reached).max(initial=0))
        after = min(at + 1, PARTS)
        low, high = float(factors[at]), float(factors[after])
    rise = float(steps[after] - steps[at])
    return low if rise <= 0 else min(low + (high - low) * float(reached - steps[at]) / rise, high)

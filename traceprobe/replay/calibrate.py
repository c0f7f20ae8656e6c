"""Makes the replay of the unchanged run take as long as the run took without a profiler.

A profiler slows the host, and collectives with it, but not kernels. How much it slows the host is
known roughly beforehand, and the step without it tells the rest: as much as the step depends on the
host. Both are weighed by their errors, so that a step that hardly depends on the host does not make
it twice as slow for a hundredth of its length. Pauses of the host, and stalls in the driver or in a
compiler, last as long without a profiler, but not the same each time: how much longer they were in
the steps that were timed is weighed along with it. Where the host does not matter, exposed
collectives are scaled. What is then left is a factor on every prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.model.accounting import HELD_UP_ERROR
from traceprobe.replay.graph import Shapes
from traceprobe.replay.scenario import with_host
from traceprobe.replay.simulate import simulate, simulate_all
from traceprobe.replay.tasks import Floats, RankSchedule
from traceprobe.verdict.thresholds import FIXED

MOST_HOST, MOST_COLLECTIVES = 2.0, 3.0
SAME = 2e-4
GRIDS, PARTS = 3, 8
HOSTS, FINE = 16, 1_600
"""Factors on the host that are played, and that are looked at between them."""
HELD_UP = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Factors on pauses and stalls that are played, where there are any."""
BETWEEN = 100
"""Factors on them that are looked at, in each range of 1."""
COLLECTIVES_ERROR = 0.1
"""What is known beforehand of a factor on collectives: the standard error around 1. Of three
recordings of a slow wire, in slowbench, those of the steps that were timed took 0.91, 1.07 and 1.09
of those that were recorded."""
MATTERS = 0.02
"""Part of the step from which on pauses and stalls are weighed."""
STEP_ERROR = 0.02
"""Relative error of a step as it was timed."""
PLAYED_ERROR = 0.05
"""The same of a step that is played with the right host: what it tells of the host is as uncertain.
docs/slowbench.md: with it nine of ten measured steps lie in, or touch, the predicted intervals."""
NINE_OF_TEN = 1.645
"""Standard errors on each side of what lies inside nine times of ten."""


class HostBelief(msgspec.Struct, frozen=True):
    """What is known beforehand of the factor on the host's time.

    Args:
        factor: what host time between launches is without the profiler, likeliest. error: its
            standard error. most: what it is at most.
    """

    factor: float
    error: float
    most: float = MOST_HOST


PROFILED_HOST = {"kineto": HostBelief(FIXED.host_usual, 0.15), "nsys": HostBelief(0.85, 0.1)}
"""By the format that a profiler writes. See docs/whatif.md for the runs it was measured on."""
AS_RECORDED = HostBelief(1.0, 0.1)
"""Where the step without a profiler is not known, and the one that was recorded counts."""


class Calibrated(msgspec.Struct, frozen=True):
    """The schedules to be changed.

    Args:
        step_ns: what they take. factor: what all predictions are multiplied by, so that this is
            the step as it was timed. host, held_up, collectives: factors on their times.
        played_ns: the step before anything was scaled.
        shapes: of the graphs that were played.
        host_known: whether the step tells more of the host's factor than was known beforehand.
        host_margin: relative error of the host's time, nine times of ten.
    """

    schedules: Sequence[RankSchedule]
    step_ns: float
    factor: float
    host: float
    held_up: float
    collectives: float
    host_known: bool
    host_margin: float
    played_ns: float
    shapes: Shapes


def calibrate(schedules: Sequence[RankSchedule], step_ns: float, belief: HostBelief) -> Calibrated:
    """The schedules, scaled so that they take `step_ns`."""
    factors = np.linspace(0.0, belief.most, HOSTS + 1)
    paces = HELD_UP if _held_up_ns(schedules) > MATTERS * step_ns else (1.0,)
    shapes: Shapes = {}
    scaled = (_with_host(schedules, f, pace) for pace in paces for f in factors)
    *played, as_it_is = simulate_all(chain(scaled, [schedules]), shapes)
    steps = np.array(played).reshape(len(paces), len(factors)) / step_ns
    doubt = _collectives_slope(schedules, belief, shapes) * COLLECTIVES_ERROR / step_ns
    host, held_up, known, margin = _weighed(factors, np.array(paces), steps, belief, doubt)
    chosen, collectives = _with_host(schedules, host, held_up), 1.0
    if known:
        takes = simulate(chosen, shapes)
    else:
        chosen, collectives, takes = _with_collectives(chosen, step_ns, shapes)
    factor = step_ns / takes
    return Calibrated(
        *(chosen, takes, factor, host, held_up, collectives, known, margin, as_it_is, shapes)
    )


def _with_host(
    schedules: Sequence[RankSchedule], factor: float, held_up: float
) -> list[RankSchedule]:
    return [with_host(schedule, factor, held_up) for schedule in schedules]


def _held_up_ns(schedules: Sequence[RankSchedule]) -> float:
    """Pauses and stalls of a step, of the rank with most of them."""
    return max(float(p.tasks.held_up.sum()) / p.iterations for p in schedules)


def _collectives_slope(
    schedules: Sequence[RankSchedule], belief: HostBelief, shapes: Shapes
) -> float:
    """How much longer a step gets with collectives that take twice as long, ns, if it is linear."""
    if not any(p.tasks.of(("communication",)).any() for p in schedules):
        return 0.0
    likely = _with_host(schedules, belief.factor, 1.0)
    shorter, longer = simulate_all(
        [_slowed(likely, 1 + change) for change in (-COLLECTIVES_ERROR, COLLECTIVES_ERROR)], shapes
    )
    return (longer - shorter) / (2 * COLLECTIVES_ERROR)


def _weighed(
    factors: Floats, paces: Floats, steps: Floats, belief: HostBelief, doubt: float
) -> tuple[float, float, bool, float]:
    """The likeliest factors on the host's time, given what is known beforehand and the step.

    Args:
        factors: on what the host launches. paces: on pauses and stalls; a single one is certain.
        steps: what is played with each pair, over the step as it is; a row a pace.
        doubt: relative error of the step for want of knowing how long collectives were in it.

    Returns:
        (host, held_up, known, margin), as in `Calibrated`.
    """
    host = np.linspace(factors[0], factors[-1], FINE + 1)
    held_up = np.linspace(paces[0], paces[-1], 1 + round(BETWEEN * float(np.ptp(paces))))
    step = _between(paces, np.stack([np.interp(host, factors, row) for row in steps]), held_up)
    cost = (step - 1) ** 2 / (STEP_ERROR**2 + doubt**2) + (
        (host - belief.factor) / belief.error
    ) ** 2
    cost += ((held_up[:, None] - 1) / HELD_UP_ERROR) ** 2
    row, at = np.unravel_index(int(np.argmin(cost)), cost.shape)
    slope = _slope(host, step[row], int(at), FINE // HOSTS // 2)
    beside = _slope(held_up, step[:, at], int(row), BETWEEN // 4) * HELD_UP_ERROR
    believed = 1 / belief.error**2
    # The step tells as little of one factor as it leaves open what the others are.
    others = beside**2 + doubt**2
    known = slope**2 / (STEP_ERROR**2 + others) > believed
    error = (slope**2 / (PLAYED_ERROR**2 + others) + believed) ** -0.5
    margin = NINE_OF_TEN * error / max(float(host[at]), error)
    return float(host[at]), float(held_up[row]), known, margin


def _between(paces: Floats, steps: Floats, wanted: Floats) -> Floats:
    """Rows between those of some paces, by straight lines."""
    if len(paces) == 1:
        return steps
    right = np.clip(np.searchsorted(paces, wanted), 1, len(paces) - 1)
    part = ((wanted - paces[right - 1]) / (paces[right] - paces[right - 1]))[:, None]
    found: Floats = steps[right - 1] * (1 - part) + steps[right] * part
    return found


def _slope(places: Floats, values: Floats, at: int, reach: int) -> float:
    """Of values around a place, `reach` places to each side; 0 where there is one alone."""
    around = slice(max(at - reach, 0), at + reach + 1)
    apart = float(np.ptp(places[around]))
    return float(values[around][-1] - values[around][0]) / apart if apart else 0.0


def _with_collectives(
    schedules: list[RankSchedule], step_ns: float, shapes: Shapes
) -> tuple[list[RankSchedule], float, float]:
    """The schedules with collectives scaled, where that makes them take `step_ns`.

    Returns:
        (schedules, factor, step): what the collectives were scaled by, and what a step takes, ns.
    """
    slowed = partial(_slowed, schedules)
    now, low, high = simulate_all([schedules, slowed(0.0), slowed(MOST_COLLECTIVES)], shapes)
    if abs(now / step_ns - 1) <= STEP_ERROR or not low < step_ns < high:
        return schedules, 1.0, now
    factor = _solve(slowed, step_ns, MOST_COLLECTIVES, shapes)
    scaled = slowed(factor)
    return scaled, factor, simulate(scaled, shapes)


def _slowed(schedules: Sequence[RankSchedule], factor: float) -> list[RankSchedule]:
    """The schedules with collectives that take `factor` times as long."""
    return [
        replace(p, tasks=p.tasks.scaled(np.where(p.tasks.of(("communication",)), factor, 1.0)))
        for p in schedules
    ]


def _solve(
    scenario: Callable[[float], list[RankSchedule]], target: float, most: float, shapes: Shapes
) -> float:
    """The largest factor up to `most` with which a step does not exceed the target.

    All factors of a grid are played at once; a finer one follows between the two that matter. The
    length of ways is linear in a factor while they stay the same, as they do between such two.
    """
    low, high, reached = 0.0, most, target * (1 + SAME)
    for _ in range(GRIDS):
        factors = np.linspace(low, high, PARTS + 1)
        steps = np.array(simulate_all([scenario(factor) for factor in factors], shapes))
        at = int(np.flatnonzero(steps <= reached).max(initial=0))
        after = min(at + 1, PARTS)
        low, high = float(factors[at]), float(factors[after])
    rise = float(steps[after] - steps[at])
    return low if rise <= 0 else min(low + (high - low) * float(reached - steps[at]) / rise, high)

"""How much of a delay in a region becomes a longer step: the slope of step time over delay.

1 where the region is on the critical path for as long as the delay lasts, 0 where something else is
waited for meanwhile. Curtsinger and Berger (Coz, SOSP 2015) slow everything else down to see what a
faster region would give; here the region itself is slowed, which a stream of a GPU allows as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from traceprobe.records.causal import Judgement, Slope
from traceprobe.verdict.student import student
from traceprobe.verdict.thresholds import FIXED

Floats = npt.NDArray[np.float64]


def slope(delays: Floats, steps: Floats) -> Slope:
    """Least squares with a level of its own for each round, since machines drift.

    The interval is Student's, of the slopes of the rounds: blocks of a round share what disturbs
    it.

    Args:
        delays, steps: ms a step, a row a round, with the blocks that had no delay.
    """
    x = delays - delays.mean(axis=1, keepdims=True)
    y = steps - steps.mean(axis=1, keepdims=True)
    weights = (x * x).sum(axis=1)
    return _around(float((x * y).sum() / weights.sum()), (x * y).sum(axis=1) / weights)


def difference(before: Floats, after: Floats) -> Slope:
    """What `after` has more than `before`, each a value a round, and its interval."""
    return _around(float((after - before).mean()), after - before)


def judge(found: Slope) -> Judgement:
    """What a slope says, as far as its interval allows."""
    if found.low > FIXED.criticality_hidden and found.high < FIXED.criticality_whole:
        return "partly"
    if found.low > FIXED.criticality:
        return "critical"
    return "hidden" if found.high < FIXED.criticality else "unclear"


def surprises(slopes: Sequence[tuple[str, Slope]]) -> list[str]:
    """Slopes that no schedule has: below 0 or above 1 by more than chance."""
    return [
        *(f"{name}: a step gets shorter with a delay" for name, s in slopes if s.high < 0),
        *(
            f"{name}: a step gets longer by more than the delay, which so does more than delay"
            for name, s in slopes
            if s.low > 1
        ),
    ]


def _around(value: float, rounds: Floats) -> Slope:
    error = float(np.std(rounds, ddof=1)) / float(np.sqrt(len(rounds)))
    normal = NormalDist().inv_cdf((1 + FIXED.probe_interval) / 2)
    reach = student(normal, len(rounds) - 1) * error
    return Slope(value=round(value, 6), low=round(value - reach, 6), high=round(value + reach, 6))

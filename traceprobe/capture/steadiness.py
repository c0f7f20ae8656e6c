"""Whether a loop has come to a steady pace, and after how many steps it repeats itself.

On the standard library alone: the recorded program may lack what traceprobe needs. Steps are timed
by the host's clock without waiting for the device. The host may run ahead of it, so single steps
say little; means over whole periods do.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

PERIODS = 3
"""Repetitions that a period needs to be one: two alike can be chance."""
EXPLAINED = 0.75
"""Part of the variance of the steps that a period has to explain."""
WINDOW = 4
"""Fewest steps of the two stretches that are compared."""
SAME_PACE = 0.03
"""Means of two stretches that differ by less are one pace."""
NOTABLE = 0.05
"""Scatter below this part of the mean is noise in which no period is looked for."""


def period(steps: Sequence[float], longest: int | None = None) -> int:
    """Steps after which the loop repeats itself; 1 where all are alike, or nothing repeats.

    The smallest distance at which steps of the same place in the period explain most of the
    variance: an evaluation every ten steps, two updates of one network and one of another.

    Args:
        steps: durations in any unit, in order.
        longest: longest period that is looked for.
    """
    mean = fmean(steps) if steps else 0.0
    total = sum((step - mean) ** 2 for step in steps)
    if not steps or total <= len(steps) * (NOTABLE * mean) ** 2:
        return 1
    for length in range(2, min(longest or len(steps), len(steps) // PERIODS) + 1):
        places = [steps[place::length] for place in range(length)]
        rest = sum(sum((s - fmean(place)) ** 2 for s in place) for place in places)
        # Every place takes up a mean of its own; without that, long periods explain everything.
        free = (len(steps) - 1) / (len(steps) - length)
        if rest * free <= (1 - EXPLAINED) * total:
            return length
    return 1


class Steadiness:
    """Steps of a loop as they come, until their pace no longer changes."""

    def __init__(self) -> None:
        self._steps: list[float] = []

    def add(self, duration: float) -> None:
        """A step has ended."""
        self._steps.append(duration)

    @property
    def steps(self) -> int:
        """Steps seen so far."""
        return len(self._steps)

    @property
    def period(self) -> int:
        """The period of the steps since the start-up; see `period`."""
        return period(self._steps[len(self._steps) // 3 :])

    @property
    def steady(self) -> bool:
        """Whether the last two stretches of whole periods have the same pace.

        Their means may differ by what single steps scatter, the longest of each place left out:
        a garbage collection is no trend.
        """
        length = self.period
        window = max(WINDOW, length)
        window += -window % length
        if len(self._steps) < 2 * window:
            return False
        before, after = self._steps[-2 * window : -window], self._steps[-window:]
        return abs(_pace(after, length) - _pace(before, length)) <= SAME_PACE * _pace(after, length)


def _pace(steps: Sequence[float], length: int) -> float:
    """A typical step: the mean over the places of a period of the median of each."""
    return fmean(median(steps[place::length]) for place in range(length))

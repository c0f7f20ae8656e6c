"""Whether a loop has come to a steady pace, and after how many steps it repeats itself.

On the standard library alone: the recorded program may lack what traceprobe needs. Steps are timed
by the host's clock without waiting for the device. The host may run ahead of it, so single steps
say little; means over whole periods do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

PERIODS = 3
"""Repetitions that a period needs to be one: two alike can be chance."""
EXPLAINED = 0.75
"""Part of the variance of the steps that a period has to explain."""
WINDOW = 4
"""Fewest steps of the two stretches that are compared."""
SAME_PACE = 0.03
"""Paces of two stretches that differ by less are one."""
SURE = 2.0
"""Standard errors within which the difference of two paces is what single steps scatter."""
DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""
LONG = 1.5
"""A step that takes so many times the median does what others do not."""
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
        return period(self._settled)

    @property
    def _settled(self) -> list[float]:
        return self._steps[len(self._steps) // 3 :]

    @property
    def steady(self) -> bool:
        """Whether the last two stretches of whole periods have the same pace.

        Their paces may differ by what single steps scatter, the longest of each place left out:
        a garbage collection is no trend. The stretches grow with what was seen, so that a slow
        trend does not hide in the scatter for long.
        """
        length = self.period
        if length == 1 and _may_repeat(self._settled):
            return False
        window = max(WINDOW, length, len(self._steps) // 4)
        window += -window % length
        if len(self._steps) < 2 * window:
            return False
        before, after = self._steps[-2 * window : -window], self._steps[-window:]
        change = abs(_pace(after, length) - _pace(before, length))
        scatter = (_error(before, length) ** 2 + _error(after, length) ** 2) ** 0.5
        return bool(change <= max(SAME_PACE * _pace(after, length), SURE * scatter))

    @property
    def first_pace(self) -> float:
        """A typical step of the first stretch, which may have what a start takes."""
        return _pace(self._steps[:WINDOW], 1)

    @property
    def pace(self) -> float:
        """A typical step of the last stretch."""
        return _pace(self._steps[-WINDOW:], 1)


def _may_repeat(steps: Sequence[float]) -> bool:
    """Whether long steps come again, and not yet often enough to tell whether they always do."""
    most = LONG * median(steps) if steps else 0.0
    places = [place for place, step in enumerate(steps) if step > most]
    apart = max((b - a for a, b in pairwise(places)), default=0)
    return len(steps) < PERIODS * apart


def _pace(steps: Sequence[float], length: int) -> float:
    """A typical step: the mean over the places of a period of the median of each."""
    return fmean(median(steps[place::length]) for place in range(length))


def _error(steps: Sequence[float], length: int) -> float:
    """Standard error of a pace, from the median distance of the steps to those of their place."""
    away = [
        abs(step - median(steps[place::length]))
        for place in range(length)
        for step in steps[place::length]
    ]
    return float(DEVIATION * median(away) / len(steps) ** 0.5)

"""Which of its ranks a step is as long as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from traceprobe.replay.scenario import Changes

Pace = Callable[[Sequence[float]], float]
"""The length of a step, from those of its ranks."""


def pace_of(asked: Changes, straggler: int | None) -> Pace:
    """The slowest rank; the mean, once work is shared evenly; the slowest but for a straggler.

    Args:
        straggler: place of the rank that all others wait for, None without one.
    """
    if "straggler" in asked.removed and straggler is not None:
        return partial(_of_others, straggler)
    return fmean if "skew" in asked.removed else max


def _of_others(straggler: int, steps: Sequence[float]) -> float:
    others = [step for place, step in enumerate(steps) if place != straggler]
    return max(others or steps)

"""Whether events come in a rhythm: every so many steps, or every so many seconds."""

from __future__ import annotations

import numpy as np

from traceprobe.watch.processes import Column, Whole

FEWEST = 4
"""Events of a rhythm: three equal distances are hardly chance."""
REGULAR = 0.8
"""Share of the distances that must keep it; an event now and then hides behind another."""
CLOSE = 0.1
"""Relative deviation of a distance in seconds that keeps it."""


def every_steps(numbers: Whole) -> int | None:
    """The distance of events in steps; None without a rhythm. Some may be missing.

    Args:
        numbers: of the steps, ascending.
    """
    gaps = np.diff(np.unique(numbers))
    if gaps.size < FEWEST - 1:
        return None
    values, counts = np.unique(gaps, return_counts=True)
    period = int(values[np.argmax(counts)])
    kept = (np.mod(gaps, period) == 0) & (gaps <= 4 * period)
    often = np.sum(gaps == period) >= REGULAR / 2 * gaps.size
    return period if often and np.mean(kept) >= REGULAR and period > 1 else None


def every_seconds(at_s: Column) -> float | None:
    """The distance of events in seconds; None without a rhythm.

    Args:
        at_s: when they were, ascending.
    """
    gaps = np.diff(at_s)
    if gaps.size < FEWEST - 1:
        return None
    period = float(np.median(gaps))
    if period <= 0:
        return None
    kept = np.mean(np.abs(gaps - period) <= CLOSE * period)
    return period if kept >= REGULAR else None

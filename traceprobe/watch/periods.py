"""Whether events come in a rhythm: every so many steps, or every so many seconds."""

from __future__ import annotations

from math import comb, log

import numpy as np

from traceprobe.watch.processes import Column, Whole

FEWEST = 4
"""Events of a rhythm: three equal distances are hardly chance."""
REGULAR = 0.8
"""Share of the distances that must keep it; an event now and then hides behind another."""
CLOSE = 0.1
"""Relative deviation of a distance in seconds that keeps it."""


CHANCE = 1e-4
"""Probability at most that events which know nothing of each other keep a rhythm so well."""
NEXT = 3
"""Events after each whose distances are tried as a rhythm: others may come between two turns."""


def in_rhythm(numbers: Whole, steps: int) -> Whole:
    """Those of some events that come in a rhythm of steps, among others that come by chance.

    Of all distances between neighbours, the one that most events keep counts, if nearly all its
    turns have an event, and more than chance would have there.

    Args:
        numbers: steps with an event, ascending. steps: of the run, all of them.

    Returns:
        The numbers that keep the rhythm; none without one.
    """
    numbers = np.unique(numbers)
    nothing = numbers[:0]
    if numbers.size < FEWEST:
        return nothing
    gaps = np.concatenate([numbers[n:] - numbers[:-n] for n in range(1, NEXT + 1)])
    periods, counts = np.unique(gaps[gaps > 1], return_counts=True)
    best = nothing
    for period in periods[counts >= FEWEST // 2].tolist():
        phase = np.bincount(numbers % period).argmax()
        kept = numbers[numbers % period == phase]
        turns = int(kept[-1] - kept[0]) // period + 1
        if kept.size <= max(best.size, FEWEST - 1) or kept.size < REGULAR * turns:
            continue
        others = (numbers.size - kept.size + 1) / steps
        tried = period * periods.size
        if log(tried * comb(turns, kept.size)) + kept.size * log(others) < log(CHANCE):
            best = kept
    return best


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

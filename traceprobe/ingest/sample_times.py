"""The time that each sample of a hardware counter stands for."""

from __future__ import annotations

import numpy as np

from traceprobe.model.events import Int64s, Quality

MOST_PERCENT = 110
"""Counters of one sample are not read at one instant, so that a busy unit shows a bit above 100."""
_GAP = 1.5
"""Intervals between two samples from which on samples are missing between them."""

_MOVED = frozenset({"clocks-disagree", "clock-offset"})


def on_clock_of_ops(quality: Quality) -> bool:
    """Whether samples and GPU ops have one clock: they need not where that of the ops was off."""
    return _MOVED.isdisjoint(quality.warnings)


def sample_starts(ends: Int64s) -> Int64s:
    """When what each sample is the mean of starts: with the one before.

    After a pause of the sampling, longer than 1.5 of the usual intervals, one of those before.

    Args:
        ends: ascending, ns. Nothing tells the interval of a single one: it stands for no time.
    """
    if len(ends) < 2:
        return ends
    distance = np.diff(ends)
    usual = int(np.median(distance))
    before = np.where(distance > _GAP * usual, usual, distance)
    since: Int64s = np.concatenate([[usual], before]).astype(np.int64)
    return ends - since


def sample_ends(starts: Int64s) -> Int64s:
    """The same of samples that are known by their starts: each ends with the next."""
    return -sample_starts(-starts[::-1])[::-1]

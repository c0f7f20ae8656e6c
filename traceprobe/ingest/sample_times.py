"""The time that each sample of a hardware counter stands for."""

from __future__ import annotations

import numpy as np

from traceprobe.model.codes import Int64s
from traceprobe.model.quality import Quality

MOST_PERCENT = 110
"""Counters of one sample are not read at one instant, so that a busy unit shows a bit above 100."""
_GAP = 1.5
"""Intervals between two samples from which on samples are missing between them."""

_MOVED = frozenset({"clocks-disagree", "clock-offset"})


def on_clock_of_ops(quality: Quality) -> bool:
    """Whether samples and GPU ops have one clock: they need not where that of the ops was off."""
    return _MOVED.isdisjoint(quality.warnings)


def sample_ends(starts: Int64s) -> Int64s:
    """When what each sample is the mean of ends: where the next one starts.

    Before a pause of the sampling, longer than 1.5 of the usual intervals, after one of those.

    Args:
        starts: ascending, ns. Nothing tells the interval of a single one: it stands for no time.
    """
    if len(starts) < 2:
        return starts
    distance = np.diff(starts)
    usual = int(np.median(distance))
    until = np.where(distance > _GAP * usual, usual, distance)
    lasts: Int64s = np.concatenate([until, [usual]]).astype(np.int64)
    return starts + lasts

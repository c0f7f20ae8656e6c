"""A pipeline with its stages equally long, or with more micro-batches.

What a stage waits for the others has two parts. While the first micro-batch comes and the last one
leaves, stages wait whatever their lengths: for p − 1 of m + p − 1 turns, with p stages and m
micro-batches (Huang et al., GPipe, 2019). The rest is that they are not equally long. So stages
that are made so still wait for each other, and with k times as many micro-batches they wait a kth.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.replay.tasks import RankSchedule


def evened(schedules: Sequence[RankSchedule]) -> list[RankSchedule]:
    """The ranks with the mean of their computing each, and as much less or more to launch."""
    own = [float(p.tasks.duration[p.tasks.of(COMPUTE_PHASES)].sum()) for p in schedules]
    mean = fmean(own)
    return [
        _scaled(p, mean / mine) if mine > 0 else p for p, mine in zip(schedules, own, strict=True)
    ]


def _scaled(schedule: RankSchedule, factor: float) -> RankSchedule:
    tasks = schedule.tasks
    factors = np.where(tasks.of(COMPUTE_PHASES), factor, 1.0)
    return replace(schedule, tasks=tasks.scaled(factors).hosted(factors))


def with_more_micro_batches(step: float, apart: float, factor: float) -> float:
    """The step with so many times as many micro-batches, of as much less each.

    Args:
        step: with those that there are. apart: of the longest stage without the others.
    """
    return apart + max(step - apart, 0.0) / factor

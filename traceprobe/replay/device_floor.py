"""What a step takes at least for its kernels alone, which no profiler makes longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.replay.tasks import RankSchedule


def device_floor_ns(schedules: Sequence[RankSchedule]) -> float:
    """Kernels of the busiest stream of a rank, ns a step.

    Of the rank that has least to do: changes may leave out what the others wait for.
    """
    return min((_busiest_ns(schedule) for schedule in schedules), default=0.0)


def _busiest_ns(schedule: RankSchedule) -> float:
    tasks = schedule.tasks
    stream = np.unique(tasks.stream, return_inverse=True)[1]
    spent = np.bincount(stream, tasks.duration * tasks.of(COMPUTE_PHASES))
    return float(spent.max(initial=0.0)) / schedule.iterations

"""What collectives take without waiting for other ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from traceprobe.records.rank import Rank
from traceprobe.replay.tasks import ALONE, RankSchedule


def transfers(schedules: Sequence[RankSchedule], ranks: Sequence[Rank]) -> list[RankSchedule]:
    """Collectives without waiting: as long as on the rank where they were shortest."""
    found = list(schedules)
    recorded = [_in_collectives(p) for p in schedules]
    for group in {g for p in schedules for g in p.tasks.group.tolist()} - {ALONE}:
        at = [np.flatnonzero(p.tasks.group == group) for p in found]
        having = [rank for rank, places in enumerate(at) if len(places)]
        if len(having) < 2 or len({len(at[rank]) for rank in having}) > 1:
            continue
        shortest = np.min([found[rank].tasks.duration[at[rank]] for rank in having], axis=0)
        for rank in having:
            tasks = found[rank].tasks
            duration, tail = tasks.duration.copy(), tasks.tail.copy()
            duration[at[rank]] = shortest
            tail[at[rank]] = shortest + tasks.lag[at[rank]]
            found[rank] = replace(found[rank], tasks=replace(tasks, duration=duration, tail=tail))
    return [
        replace(p, waited=waiting_beside(rank, 1 - _in_collectives(p) / before)) if before else p
        for p, rank, before in zip(found, ranks, recorded, strict=True)
    ]


def waiting_beside(rank: Rank, waited: float) -> float:
    """Part of the time in which collectives run beside computation that is waiting for other ranks.

    Args:
        waited: of all their time.
    """
    times = rank.summary.communication
    if times is None or not times.overlapped_ns:
        return 0.0
    beside = waited * times.total_ns - (times.skew_exposed_ns or 0)
    return float(np.clip(beside / times.overlapped_ns, 0.0, 1.0))


def _in_collectives(schedule: RankSchedule) -> float:
    """How long all collectives of a rank last, ns."""
    return float(schedule.tasks.duration[schedule.tasks.collective].sum())

"""Tasks of a rank to be played again."""

from __future__ import annotations

from traceprobe.replay.tasks import ALONE, UNNAMED, RankSchedule, Task, tasks_of


def task(kind="forward", *, host=1.0, duration=10.0, collective=False, **more):
    """A task of one operation."""
    group = UNNAMED if collective else ALONE
    given = {"first_host": host, "tail": duration, "group": group, **more}
    return Task(kind=kind, host=host, duration=duration, **given)


def schedule(*tasks, period=None, latency=0.0):
    """A rank that does these tasks in turn."""
    return RankSchedule(tasks_of(tasks), 1 + max(t.iteration for t in tasks), latency, period)

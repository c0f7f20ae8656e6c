"""Simulates the tasks of a replay: who waits for whom, and when everything ends.

The rules, for the tasks of one rank in launch order, over and over:

- The host goes on once the task that it awaits has ended, once its batch is there, and after the
  time that it needs itself.
- A task starts once its stream is free, its first launch is made and what it needs has ended.
- It ends after its operations have run, and not before the last of them, launched last, could.
- A collective starts on all ranks when the last of them is ready, and lasts as long on all.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from traceprobe.errors import ImpossibleChange
from traceprobe.records.replay import COLUMNS, Replay

CYCLES = 3
"""Times that the iterations are played; the last counts, when the beginning is forgotten."""


@dataclass(frozen=True)
class Task:
    """A row of a `Replay`, whose columns have the same meaning; times are ns.

    Args:
        needs: distances to tasks that must end before. collective: whether all ranks take part.
    """

    iteration: int
    kind: str
    stream: int
    first_host: float
    host: float
    duration: float
    lag: float
    tail: float
    data_wait: float
    awaits: int
    needs: tuple[int, ...]
    bytes: int
    collective: bool

    def emptied(self) -> Task:
        """The task in its place, without any work of host or GPU."""
        idle = replace(self, first_host=0.0, host=0.0, duration=0.0, lag=0.0, tail=0.0)
        return replace(idle, bytes=-1, collective=False)


@dataclass(frozen=True)
class RankSchedule:
    """What one rank does.

    Args:
        latency: from a launch to its start on an idle device, ns.
        period: time that the loader needs for a batch, ns; None where it is never late.
    """

    tasks: Sequence[Task]
    iterations: int
    latency: float
    period: float | None


def schedule_of(replay: Replay) -> RankSchedule:
    """The tasks of a rank; its loader is never late.

    Raises:
        ImpossibleChange: somebody changed the columns.
    """
    problem = next(replay.problems(), None)
    if problem is not None:
        raise ImpossibleChange(
            f"the replay in the report is damaged ({problem}); analyze the trace again"
        )
    rows = zip(*(getattr(replay, name) for name in COLUMNS), strict=True)
    tasks = [_task(replay.kinds, row) for row in rows]
    return RankSchedule(tasks, replay.iterations, replay.latency_ns, None)


def _task(kinds: Sequence[str], row: Sequence[int]) -> Task:
    """A row of a replay, whose columns are in the order of the fields of a task."""
    iteration, kind, *times, awaits, needs, size = row
    distances = (needs,) if needs else ()
    collective = kinds[kind] == "communication"
    fields: list[Any] = [iteration, kinds[kind], *times, awaits, distances, size, collective]
    return Task(*fields)


def simulate(schedules: Sequence[RankSchedule], *, balanced: bool = False) -> float:
    """Step of the slowest rank, ns; ranks that wait for each other are equally fast.

    Ranks that do not make equally many collectives play for themselves.

    Args:
        balanced: the mean of the ranks instead, as if their work had been shared out evenly.
    """
    counts = {sum(task.collective for task in schedule.tasks) for schedule in schedules}
    together = [list(schedules)] if len(counts) == 1 else [[schedule] for schedule in schedules]
    steps = [step for group in together for step in _together(group)]
    return sum(steps) / len(steps) if balanced else max(steps)


def _together(schedules: Sequence[RankSchedule]) -> list[float]:
    players = [_player(schedule) for schedule in schedules]
    starts: list[float | None] = [None] * len(schedules)
    while True:
        ready, steps = [], []
        for player, start in zip(players, starts, strict=True):
            try:
                ready.append(player.send(start))
            except StopIteration as end:
                steps.append(end.value)
        if not ready:
            return steps
        starts = [max(ready)] * len(schedules)


def _player(schedule: RankSchedule) -> Generator[float, float | None, float]:
    """Yields when it is ready for a collective, takes when that starts, returns the mean step."""
    ends: list[float] = []
    free: dict[int, float] = {}
    host = batch_ready = 0.0
    done: list[float] = []
    for _ in range(CYCLES):
        fetched = -1
        for task in schedule.tasks:
            if 0 < task.awaits <= len(ends):
                host = max(host, ends[-task.awaits])
            if task.data_wait:
                if schedule.period is None:
                    host += task.data_wait
                elif task.iteration != fetched:
                    fetched = task.iteration
                    batch_ready += schedule.period
                    host = max(host, batch_ready)
            launched = host + task.first_host
            host += task.host
            start = max(free.get(task.stream, 0.0), launched + schedule.latency)
            for distance in task.needs:
                if distance <= len(ends):
                    start = max(start, ends[-distance])
            if task.collective:
                told = yield start
                start = start if told is None else told
            end = max(start + task.duration + task.lag, host + schedule.latency + task.tail)
            ends.append(end)
            free[task.stream] = end
        done.append(max(free.values()))
    return (done[-1] - done[-2]) / schedule.iterations

"""The critical path of a run as it is reported, and what its collectives hold up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.critical_path import (
    Blocking,
    CriticalPath,
    Edges,
    PathOperator,
    PathPart,
    Slack,
    Stretch,
)
from traceprobe.records.rank import Rank
from traceprobe.records.replay import Replay
from traceprobe.replay.critical_path import Path, critical_path
from traceprobe.replay.predict import Playable
from traceprobe.replay.simulate import graphs_of, simulate, simulate_all, step_lengths_of
from traceprobe.replay.tasks import Bools, RankSchedule

MAX_OPERATORS = 12
MAX_BLOCKING = 24
MAX_STRETCHES = 2_000
LEAST = 0.01
"""Of a step: what could end later by less has no slack to speak of, and what is shorter is left out
of the slack."""


def path_record(run: Playable) -> CriticalPath:
    """The critical path of a run, in ms of the step as it is without a profiler."""
    schedules, path, ranks = _longest_path(run)
    per_ns = run.now / path.cycle if path.cycle else 0.0
    replays = [rank.replay for rank in ranks if isinstance(rank.replay, Replay)]
    table = path.table.with_columns(
        ms=(pl.col("t1") - pl.col("t0")) * per_ns,
        number=pl.col("rank").replace_strict(
            list(range(len(ranks))), [rank.rank for rank in ranks], return_dtype=pl.Int64
        ),
    )
    return CriticalPath(
        step_ms=round(run.now, 6),
        parts=_parts(table),
        operators=_operators(table, replays),
        slack=_slack(schedules, path, ranks, per_ns),
        stretches=_stretches(table, schedules, replays),
        blocking=_blocking(run),
        blocking_ms=_blocked_ms(run),
        edges=Edges(
            recorded=sum(replay.recorded_needs for replay in replays),
            inferred=sum(replay.inferred_needs for replay in replays),
            unresolved=sum(replay.unresolved_needs for replay in replays),
        ),
        host_factor=round(run.base.host, 4),
    )


def _longest_path(run: Playable) -> tuple[Sequence[RankSchedule], Path, Sequence[Rank]]:
    """The path of all ranks, or of the slowest where they cannot be played together."""
    every = run.base.schedules
    graphs = graphs_of(every, {})
    if len(graphs) == 1:
        return every, critical_path(graphs[0], every), run.played
    slowest = int(np.argmax([step_lengths_of(graph).max() for graph in graphs]))
    alone = [every[slowest]]
    return alone, critical_path(graphs[slowest], alone), [run.played[slowest]]


def _parts(table: pl.DataFrame) -> list[PathPart]:
    rows = table.group_by("part", "number").agg(pl.col("ms").sum())
    rows = rows.sort(pl.col("ms"), "part", "number", descending=[True, False, False])
    return [PathPart(part=part, rank=rank, ms=round(ms, 6)) for part, rank, ms in rows.iter_rows()]


def _operators(table: pl.DataFrame, replays: Sequence[Replay]) -> list[PathOperator]:
    work = table.filter(pl.col("part").is_in([*BUSY_LABELS, "host"]))
    names = [
        replays[rank].names[replays[rank].name[task]] if replays[rank].name else ""
        for rank, task in work.select("rank", "task").iter_rows()
    ]
    rows = (
        work.with_columns(operator=pl.Series(names, dtype=pl.String))
        .filter(pl.col("operator") != "")
        .group_by("operator", "part", "number")
        .agg(pl.col("ms").sum())
        .sort("ms", "operator", "part", "number", descending=[True, False, False, False])
        .head(MAX_OPERATORS)
    )
    return [
        PathOperator(operator=operator, part=part, rank=rank, ms=round(ms, 6))
        for operator, part, rank, ms in rows.iter_rows()
    ]


def _slack(
    schedules: Sequence[RankSchedule], path: Path, ranks: Sequence[Rank], per_ns: float
) -> list[Slack]:
    found = []
    for schedule, slack, rank in zip(schedules, path.slack, ranks, strict=True):
        tasks = schedule.tasks
        loose = np.isfinite(slack) & (slack >= LEAST * path.cycle / schedule.iterations)
        for part in np.unique(tasks.kind[loose & (tasks.duration > 0)]).tolist():
            mine = loose & (tasks.kind == part) & (tasks.duration > 0)
            busy = float(tasks.duration[mine].sum()) * per_ns
            if busy >= LEAST * per_ns * path.cycle:
                least = float(slack[mine].min()) * per_ns * schedule.iterations
                least = min(least, path.cycle * per_ns)  # in the next step it is another's
                found.append(
                    Slack(
                        part=part, rank=rank.rank, busy_ms=round(busy, 6), slack_ms=round(least, 6)
                    )
                )
    return sorted(found, key=lambda each: (-each.busy_ms, each.part, each.rank))


def _stretches(
    table: pl.DataFrame, schedules: Sequence[RankSchedule], replays: Sequence[Replay]
) -> list[Stretch]:
    """Where the path runs in the last recorded iteration; waiting fills what is between work."""
    found: list[Stretch] = []
    waiting: tuple[str, float] = ("", 0.0)
    until: dict[int, int] = {}
    for rank, task, part, last, ms, number in table.select(
        "rank", "task", "part", "last", "ms", "number"
    ).iter_rows():
        replay, schedule = replays[rank], schedules[rank]
        if not replay.start_ns or not replay.end_ns:
            return []
        if int(schedule.tasks.iteration[task]) != schedule.iterations - 1:
            continue
        if part not in BUSY_LABELS:
            waiting = max(waiting, (part, ms), key=lambda each: each[1])
            continue
        start, end = replay.start_ns[task], replay.end_ns[task]
        if last:
            start = max(start, end - replay.tail_ns[task])
        start = max(start, until.get(number, start))
        if waiting[0] and number in until and start > until[number]:
            found.append(_stretch(number, waiting[0], until[number], start))
        if end > start:
            found.append(_stretch(number, part, start, end))
        until[number], waiting = max(end, until.get(number, end)), ("", 0.0)
    return found[-MAX_STRETCHES:]


def _stretch(rank: int, part: str, start: int, end: int) -> Stretch:
    return Stretch(rank=rank, part=part, start_ns=start, end_ns=end)


def _blocked_ms(run: Playable) -> float | None:
    """How much sooner a step would end if no collective took any time."""
    if not any(schedule.tasks.collective.any() for schedule in run.base.schedules):
        return None
    free = [_without_time(p, p.tasks.collective) for p in run.base.schedules]
    return _sooner(run, simulate(free))


def _blocking(run: Playable) -> list[Blocking]:
    schedules = run.base.schedules
    kinds: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for schedule in schedules:
        tasks = schedule.tasks
        mine = np.flatnonzero(tasks.collective)
        for key in set(zip(tasks.group[mine].tolist(), tasks.bytes[mine].tolist(), strict=True)):
            which = _of_kind(schedule, key)
            busy = float(tasks.duration[which].sum()) / schedule.iterations
            kinds.setdefault(key, []).append((busy, int(which.sum())))
    most = sorted(kinds, key=lambda key: (-max(kinds[key])[0], key))[:MAX_BLOCKING]
    steps = simulate_all([[_without_time(p, _of_kind(p, key)) for p in schedules] for key in most])
    factor = run.now / run.step_ns
    found = [
        Blocking(
            group=key[0] - 1,
            bytes=key[1],
            count_per_step=round(max(n for _, n in kinds[key]) / schedules[0].iterations, 4),
            busy_ms=round(max(busy for busy, _ in kinds[key]) * factor, 6),
            blocking_ms=_sooner(run, step),
        )
        for key, step in zip(most, steps, strict=True)
    ]
    return sorted(found, key=lambda each: (-each.blocking_ms, -each.busy_ms, each.group))


def _of_kind(schedule: RankSchedule, key: tuple[int, int]) -> Bools:
    found: Bools = (schedule.tasks.group == key[0]) & (schedule.tasks.bytes == key[1])
    return found


def _without_time(schedule: RankSchedule, which: Bools) -> RankSchedule:
    """The schedule with some tasks that take no time, but are waited for as before."""
    tasks, kept = schedule.tasks, ~which
    free = {name: getattr(tasks, name) * kept for name in ("duration", "lag", "tail")}
    return replace(schedule, tasks=replace(tasks, **free))


def _sooner(run: Playable, step_ns: float) -> float:
    return round(max(run.now * (1 - step_ns / run.step_ns), 0.0), 6)

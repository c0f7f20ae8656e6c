"""The critical path of a run as it is reported, and what its collectives hold up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.critical_path import (
    Blocking,
    CriticalPath,
    Edges,
    PathOperator,
    PathPart,
    Slack,
)
from traceprobe.records.rank import Rank
from traceprobe.records.replay import Replay
from traceprobe.replay.critical_path import Path, critical_path
from traceprobe.replay.path_stretches import path_stretches
from traceprobe.replay.predict import Playable
from traceprobe.replay.simulate import graphs_of, longest, simulate_all, step_lengths
from traceprobe.replay.tasks import Bools, RankSchedule

MAX_OPERATORS = 12
MAX_BLOCKING = 24
LEAST = 0.01
"""Of a step: work off the path that is shorter is left out."""
UNCHANGED = 0.001
"""A step that gets longer by no more than this part is as long as before."""
PARTS = 8
"""Lengths that are tried, up to a step."""


def path_record(run: Playable) -> CriticalPath:
    """The critical path of a run, in ms of the step as it is without a profiler."""
    path, ranks = _longest_path(run)
    per_ns = run.now / path.cycle if path.cycle else 0.0
    replays = [rank.replay for rank in ranks if isinstance(rank.replay, Replay)]
    table = path.table.with_columns(
        ms=(pl.col("t1") - pl.col("t0")) * per_ns,
        number=pl.col("rank").replace_strict(
            list(range(len(ranks))), [rank.rank for rank in ranks], return_dtype=pl.Int64
        ),
    )
    blocking, blocking_ms = _blocking(run)
    return CriticalPath(
        step_ms=round(run.now, 6),
        parts=_parts(table),
        operators=_operators(table, replays),
        slack=_slack(run, table),
        stretches=path_stretches(table, ranks),
        blocking=blocking,
        blocking_ms=blocking_ms,
        edges=Edges(
            recorded=sum(replay.recorded_needs for replay in replays),
            inferred=sum(replay.inferred_needs for replay in replays),
            unresolved=sum(replay.unresolved_needs for replay in replays),
        ),
        host_factor=round(run.base.host, 4),
    )


def _longest_path(run: Playable) -> tuple[Path, Sequence[Rank]]:
    """The path of all ranks, or of the slowest where they cannot be played together."""
    every = run.base.schedules
    graphs = graphs_of(every, run.base.shapes)
    if len(graphs) == 1:
        return critical_path(graphs[0], every), run.played
    slowest = int(np.argmax([step_lengths(graph.shape, longest(graph)).max() for graph in graphs]))
    return critical_path(graphs[slowest], [every[slowest]]), [run.played[slowest]]


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


def _slack(run: Playable, table: pl.DataFrame) -> list[Slack]:
    """Work that is nowhere on the path, and by how much all of it may get longer."""
    on_path = set(table.select("part", "number").iter_rows())
    schedules, factor = run.base.schedules, run.now / run.base.step_ns
    off: list[tuple[str, int, float]] = []
    for number, (schedule, rank) in enumerate(zip(schedules, run.played, strict=True)):
        tasks = schedule.tasks
        for part in np.unique(tasks.kind).tolist():
            busy = float(tasks.duration[tasks.kind == part].sum()) / schedule.iterations
            if (part, rank.rank) not in on_path and busy >= LEAST * run.base.step_ns:
                off.append((part, number, busy))
    grid = np.linspace(0.0, run.base.step_ns, PARTS + 1)[1:]
    longer = [
        _longer(schedules, number, part, more / busy) for part, number, busy in off for more in grid
    ]
    rise = (
        np.array(simulate_all(longer, run.base.shapes)).reshape(len(off), PARTS) - run.base.step_ns
    )
    # Once a step gets longer by what its work does, all before that was slack.
    slack = np.where(rise > UNCHANGED * run.base.step_ns, grid - rise, run.base.step_ns).min(axis=1)
    found = [
        Slack(
            part=part,
            rank=run.played[number].rank,
            busy_ms=round(busy * factor, 6),
            slack_ms=round(max(float(more), 0.0) * factor, 6),
        )
        for (part, number, busy), more in zip(off, slack, strict=True)
    ]
    return sorted(found, key=lambda each: (-each.busy_ms, each.part, each.rank))


def _longer(
    schedules: Sequence[RankSchedule], number: int, part: str, by: float
) -> list[RankSchedule]:
    """The schedules, of which one has work of a kind that takes longer, by a part of its time."""
    tasks = schedules[number].tasks
    slower = replace(
        schedules[number], tasks=tasks.scaled(np.where(tasks.kind == part, 1 + by, 1.0))
    )
    return [slower if place == number else other for place, other in enumerate(schedules)]


def _blocking(run: Playable) -> tuple[list[Blocking], float | None]:
    """How much sooner a step would end without the time of some collectives, and of all; ms."""
    schedules = run.base.schedules
    if not any(schedule.tasks.collective.any() for schedule in schedules):
        return [], None
    kinds: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for schedule in schedules:
        tasks = schedule.tasks
        mine = np.flatnonzero(tasks.collective)
        for key in set(zip(tasks.group[mine].tolist(), tasks.bytes[mine].tolist(), strict=True)):
            which = _of_kind(schedule, key)
            busy = float(tasks.duration[which].sum()) / schedule.iterations
            kinds.setdefault(key, []).append((busy, int(which.sum())))
    most = sorted(kinds, key=lambda key: (-max(kinds[key])[0], key))[:MAX_BLOCKING]
    free = [_without_time(p, p.tasks.collective) for p in schedules]
    without = [[_without_time(p, _of_kind(p, key)) for p in schedules] for key in most]
    of_all, *steps = simulate_all([free, *without], run.base.shapes)
    factor = run.now / run.base.step_ns
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
    found.sort(key=lambda each: (-each.blocking_ms, -each.busy_ms, each.group))
    return found, _sooner(run, of_all)


def _of_kind(schedule: RankSchedule, key: tuple[int, int]) -> Bools:
    found: Bools = (schedule.tasks.group == key[0]) & (schedule.tasks.bytes == key[1])
    return found


def _without_time(schedule: RankSchedule, which: Bools) -> RankSchedule:
    """The schedule with some tasks that take no time, but are waited for as before."""
    tasks, kept = schedule.tasks, ~which
    free = {name: getattr(tasks, name) * kept for name in ("duration", "lag", "tail")}
    return replace(schedule, tasks=replace(tasks, **free))


def _sooner(run: Playable, step_ns: float) -> float:
    return round(float(max(run.now * (1 - step_ns / run.base.step_ns), 0.0)), 6)

"""The critical path of a run as it is reported, and what its collectives hold up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

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
from traceprobe.replay.tasks import Bools, Floats, RankSchedule

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
    blocks, off = _collectives(run), _off_path(run, table)
    scenarios = chain(_freed(run, blocks), _lengthened(run, off))
    steps = np.array(simulate_all(scenarios, run.base.shapes))
    freed = len(steps) - len(off) * PARTS
    blocking, blocking_ms = _blocking(run, blocks, steps[:freed])
    return CriticalPath(
        step_ms=round(run.now, 6),
        parts=_parts(table),
        operators=_operators(table, replays),
        slack=_slack(run, off, steps[freed:]),
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


def _off_path(run: Playable, table: pl.DataFrame) -> list[tuple[str, int, float]]:
    """Work that is nowhere on the path: its kind, place of its rank, and ns of a step."""
    on_path = set(table.select("part", "number").iter_rows())
    off: list[tuple[str, int, float]] = []
    for number, (schedule, rank) in enumerate(zip(run.base.schedules, run.played, strict=True)):
        tasks = schedule.tasks
        for part in np.unique(tasks.kind).tolist():
            busy = float(tasks.duration[tasks.kind == part].sum()) / schedule.iterations
            if (part, rank.rank) not in on_path and busy >= LEAST * run.base.step_ns:
                off.append((part, number, busy))
    return off


def _grid(run: Playable) -> Floats:
    """By how much work gets longer, ns."""
    return np.linspace(0.0, run.base.step_ns, PARTS + 1)[1:]


def _lengthened(
    run: Playable, off: Sequence[tuple[str, int, float]]
) -> Iterator[list[RankSchedule]]:
    """The run with each kind of work longer by each step of the grid."""
    for part, number, busy in off:
        for more in _grid(run):
            yield _longer(run.base.schedules, number, part, more / busy)


def _slack(run: Playable, off: Sequence[tuple[str, int, float]], steps: Floats) -> list[Slack]:
    """By how much all of some work may get longer.

    Args:
        steps: of `_lengthened`, ns.
    """
    grid, factor = _grid(run), run.now / run.base.step_ns
    rise = steps.reshape(len(off), PARTS) - run.base.step_ns
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


def _collectives(run: Playable) -> dict[tuple[int, int], list[tuple[float, int]]]:
    """Collectives by group and bytes, those of most time first: ns of a step and number by rank."""
    kinds: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for schedule in run.base.schedules:
        tasks = schedule.tasks
        mine = np.flatnonzero(tasks.collective)
        for key in set(zip(tasks.group[mine].tolist(), tasks.bytes[mine].tolist(), strict=True)):
            which = _of_kind(schedule, key)
            busy = float(tasks.duration[which].sum()) / schedule.iterations
            kinds.setdefault(key, []).append((busy, int(which.sum())))
    most = sorted(kinds, key=lambda key: (-max(kinds[key])[0], key))[:MAX_BLOCKING]
    return {key: kinds[key] for key in most}


def _freed(run: Playable, kinds: Iterable[tuple[int, int]]) -> Iterator[list[RankSchedule]]:
    """The run without the time of any collective, and without that of each kind; none has none."""
    schedules, kinds = run.base.schedules, list(kinds)
    if kinds:
        yield [_without_time(p, p.tasks.collective) for p in schedules]
    for key in kinds:
        yield [_without_time(p, _of_kind(p, key)) for p in schedules]


def _blocking(
    run: Playable, kinds: Mapping[tuple[int, int], list[tuple[float, int]]], steps: Floats
) -> tuple[list[Blocking], float | None]:
    """How much sooner a step would end without the time of some collectives, and of all; ms.

    Args:
        kinds: as `_collectives`. steps: of `_freed`, ns.
    """
    if not kinds:
        return [], None
    factor = run.now / run.base.step_ns
    found = [
        Blocking(
            group=key[0] - 1,
            bytes=key[1],
            count_per_step=round(max(n for _, n in ranks) / run.base.schedules[0].iterations, 4),
            busy_ms=round(max(busy for busy, _ in ranks) * factor, 6),
            blocking_ms=_sooner(run, step),
        )
        for (key, ranks), step in zip(kinds.items(), steps[1:].tolist(), strict=True)
    ]
    found.sort(key=lambda each: (-each.blocking_ms, -each.busy_ms, each.group))
    return found, _sooner(run, float(steps[0]))


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

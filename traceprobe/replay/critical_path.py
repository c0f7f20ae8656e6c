"""The longest way through the last cycle, and how much later everything else could end.

From the end of the slowest rank's last cycle the way leads back over the edges that hold: those
whose target is no later than they say. What of them lies in the last cycle adds up to its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.replay.graph import CYCLES, Edge, Graph
from traceprobe.replay.simulate import longest, step_lengths
from traceprobe.replay.tasks import Floats, RankSchedule

PATH = {
    "rank": pl.Int64,  # whose time
    "task": pl.Int64,
    "part": pl.String,  # what it is spent on; see `records.critical_path.PathPart`
    "last": pl.Boolean,  # the last operation of the task alone
    "t0": pl.Float64,  # when it is played, ns
    "t1": pl.Float64,
}
"""Columns of a way."""


@dataclass(frozen=True)
class Path:
    """The way through the last cycle.

    Args:
        table: as `PATH`, in order of time; the stretches add up to the cycle.
        slack: per rank and task, by how much later it could end without making a cycle longer, ns.
        cycle: its length, ns.
    """

    table: pl.DataFrame
    slack: list[Floats]
    cycle: float


def critical_path(graph: Graph, schedules: Sequence[RankSchedule]) -> Path:
    """The critical path of ranks that play together, in that of the rank whose step is longest."""
    shape, weight = graph.shape, graph.weight
    instants = longest(shape, weight[:, None])
    slowest = int(np.argmax(step_lengths(shape, instants)[:, 0]))
    when = instants[:, 0]
    *_, before, last = (int(cycle[np.argmax(when[cycle])]) for cycle in shape.ends[slowest])
    low, high = when[before], when[last]
    rows = []
    for edge in _way_back(graph, when, last, low):
        at = when[shape.source[edge]]
        for part, spent in _spent(graph, schedules, edge):
            t0, t1 = max(at, low), min(at + spent, high)
            if t1 > t0:
                is_last = int(graph.kind[edge]) == Edge.LAST
                rows.append((int(graph.rank[edge]), int(graph.task[edge]), part, is_last, t0, t1))
            at += spent
    table = pl.DataFrame(rows, schema=PATH, orient="row").sort("t0", maintain_order=True)
    return Path(table, _slack(graph, when), float(high - low))


def _way_back(graph: Graph, when: Floats, last: int, until: float) -> Iterator[int]:
    """Edges from an instant back to one that is no later than `until`."""
    shape = graph.shape
    by_target, ranges = shape.incoming
    leading = {instant: (low, high) for instant, low, high in ranges}
    instant = last
    while instant in leading and when[instant] > until:
        edges = by_target[slice(*leading[instant])]
        edge = int(edges[np.argmax(when[shape.source[edges]] + graph.weight[edges])])
        yield edge
        instant = int(shape.source[edge])


def _spent(
    graph: Graph, schedules: Sequence[RankSchedule], edge: int
) -> Iterator[tuple[str, float]]:
    """What the time of an edge is spent on, in its order."""
    weight, kind = float(graph.weight[edge]), int(graph.kind[edge])
    schedule, task = schedules[graph.rank[edge]], int(graph.task[edge])
    tasks = schedule.tasks
    name = str(tasks.kind[task])
    if kind == Edge.BATCH:
        yield "data-wait", weight
    elif kind in (Edge.HOST, Edge.LAUNCH):
        own, latency = (
            (tasks.host[task], 0.0)
            if kind == Edge.HOST
            else (tasks.first_host[task], schedule.latency)
        )
        yield "data-wait", weight - float(own) - latency
        yield "host", float(own)
        yield "launch", latency
    elif kind == Edge.RUN:
        yield "delay", float(tasks.lag[task])
        yield name, weight - float(tasks.lag[task])
    elif kind == Edge.LAST:
        yield "launch", schedule.latency
        yield name, weight - schedule.latency


def _slack(graph: Graph, when: Floats) -> list[Floats]:
    """By how much later each task of the last cycle but one could end."""
    shape = graph.shape
    latest = np.full(len(when), np.inf)
    # Ranks that wait for each other are equally fast: the end of none may move.
    for *_, last in shape.ends:
        latest[last] = when[last].max()
    by_target, ranges = shape.incoming
    source, weight = shape.source[by_target].tolist(), graph.weight[by_target].tolist()
    allowed = latest.tolist()
    for instant, low, high in reversed(ranges):
        for edge in range(low, high):
            allowed[source[edge]] = min(allowed[source[edge]], allowed[instant] - weight[edge])
    found = np.array(allowed) - when
    return [found[cycles[CYCLES - 2]] for cycles in shape.ends]

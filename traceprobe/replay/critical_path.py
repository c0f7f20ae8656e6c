"""The longest way through a cycle.

From the end of the slowest rank's last cycle the way leads back over the edges that hold: those
whose target is no later than they say. Where it passes an instant of one cycle and the same one of
the cycle before, what lies between comes again and again: it is what a cycle is as long as. The end
of the last cycle does not; a device finishes what is left there while nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.replay.graph import END, HOST, START, Edge, Graph
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


class Path(msgspec.Struct, frozen=True):
    """The way through a cycle.

    Args:
        table: as `PATH`, in order of time; the stretches add up to the cycle.
        cycle: its length, ns.
    """

    table: pl.DataFrame
    cycle: float


def critical_path(graph: Graph, schedules: Sequence[RankSchedule]) -> Path:
    """The critical path of ranks that play together, back from the one whose step is longest."""
    shape, when = graph.shape, longest(graph)
    slowest = int(np.argmax(step_lengths(shape, when)))
    *_, before, last = (int(cycle[np.argmax(when[cycle])]) for cycle in shape.ends[slowest])
    edges = list(_way_back(graph, when, last))
    upper, lower = _again(graph, edges) or (last, before)
    low, high = float(when[lower]), float(when[upper])
    rows = []
    for edge in edges:
        at = float(when[shape.source[edge]])
        for part, spent in _spent(graph, schedules, edge):
            t0, t1 = max(at, low), min(at + spent, high)
            if t1 > t0:
                is_last = int(graph.shape.kind[edge]) == Edge.LAST
                rows.append(
                    (
                        int(graph.shape.rank[edge]),
                        int(graph.shape.task[edge]),
                        part,
                        is_last,
                        t0,
                        t1,
                    )
                )
            at += spent
    table = pl.DataFrame(rows, schema=PATH, orient="row").sort("t0", maintain_order=True)
    return Path(table, high - low)


def _way_back(graph: Graph, when: Floats, last: int) -> Iterator[int]:
    """Edges from an instant back to the beginning."""
    shape = graph.shape
    instant = last
    while True:
        low, high = shape.first_incoming[shape.place[instant] :][:2]
        if low == high:
            return
        edges = shape.incoming[low:high]
        edge = int(edges[np.argmax(when[shape.source[edges]] + graph.weight[edges])])
        yield edge
        instant = int(shape.source[edge])


def _again(graph: Graph, edges: Sequence[int]) -> tuple[int, int] | None:
    """The last instant of the way that it passes in the cycle before, too, and that one."""
    cycle = np.full(len(graph.shape.order), -1)
    same = np.full(len(graph.shape.order), -1)
    for ends in graph.shape.ends:
        for instant in (END - HOST, END - START, 0):
            cycle[ends - instant] = np.arange(len(ends))[:, None]
            same[ends[1:] - instant] = ends[:-1] - instant
    passed = [int(graph.shape.target[edge]) for edge in edges]
    known = set(passed)
    for instant in passed:
        if cycle[instant] > 1 and int(same[instant]) in known:
            return instant, int(same[instant])
    return None


def _spent(
    graph: Graph, schedules: Sequence[RankSchedule], edge: int
) -> Iterator[tuple[str, float]]:
    """What the time of an edge is spent on, in its order."""
    weight, kind = float(graph.weight[edge]), int(graph.shape.kind[edge])
    schedule, task = schedules[graph.shape.rank[edge]], int(graph.shape.task[edge])
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

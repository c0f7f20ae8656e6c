"""The longest way through a cycle.

From the end of the slowest rank's last cycle the way leads back over the edges that hold: those
whose target is no later than they say. Where it passes an instant of one cycle and the same one of
the cycle before, what lies between comes again and again: it is what a cycle is as long as. The end
of the last cycle does not; a device finishes what is left there while nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from traceprobe.replay.graph import END, HOST, START, Edge, Graph
from traceprobe.replay.reduction import NONE
from traceprobe.replay.simulate import longest, step_lengths
from traceprobe.replay.tasks import Floats, Int64s, RankSchedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    edges = _way_back(graph, when, last)
    upper, lower = _again(graph, edges) or (last, before)
    low, high = float(when[lower]), float(when[upper])
    return Path(_stretches(graph, schedules, when, edges, low, high), high - low)


def _way_back(graph: Graph, when: Floats, last: int) -> Int64s:
    """Edges from an instant back to the beginning."""
    shape = graph.shape
    begin, edges = shape.first_incoming, shape.incoming
    places, counts = np.flatnonzero(begin[1:] > begin[:-1]), np.diff(begin)
    arrival = when[shape.source[edges]] + graph.weight[edges]
    latest = np.maximum.reduceat(arrival, begin[places])
    holds = np.flatnonzero(arrival == np.repeat(latest, counts[places]))
    _, first = np.unique(np.repeat(places, counts[places])[holds], return_index=True)
    held_by = np.full(len(shape.order), NONE)
    held_by[shape.order[places]] = edges[holds[first]]
    leads, source = held_by.tolist(), shape.source.tolist()
    way, edge = [], leads[last]
    while edge != NONE:
        way.append(edge)
        edge = leads[source[edge]]
    return np.array(way, np.int64)


def _again(graph: Graph, edges: Int64s) -> tuple[int, int] | None:
    """The last instant of the way that it passes in the cycle before, too, and that one."""
    cycle = np.full(len(graph.shape.order), -1)
    same = np.full(len(graph.shape.order), -1)
    for ends in graph.shape.ends:
        for instant in (END - HOST, END - START, 0):
            cycle[ends - instant] = np.arange(len(ends))[:, None]
            same[ends[1:] - instant] = ends[:-1] - instant
    passed = graph.shape.target[edges].tolist()
    known = set(passed)
    for instant in passed:
        if cycle[instant] > 1 and int(same[instant]) in known:
            return instant, int(same[instant])
    return None


def _stretches(
    graph: Graph,
    schedules: Sequence[RankSchedule],
    when: Floats,
    edges: Int64s,
    low: float,
    high: float,
) -> pl.DataFrame:
    """What the time of some edges is spent on, as `PATH`, as far as it is from `low` to `high`."""
    shape = graph.shape
    spent, part = _spent(graph, schedules, edges)
    begin = np.cumsum(np.column_stack([when[shape.source[edges]], spent]), axis=1)[:, :-1]
    t0, t1 = np.maximum(begin, low), np.minimum(begin + spent, high)
    row, column = np.nonzero(t1 > t0)
    rows = {
        "rank": shape.rank[edges][row],
        "task": shape.task[edges][row],
        "part": part[row, column].tolist(),
        "last": shape.kind[edges][row] == Edge.LAST,
        "t0": t0[row, column],
        "t1": t1[row, column],
    }
    return pl.DataFrame(rows, schema=PATH).sort("t0", maintain_order=True)


def _spent(
    graph: Graph, schedules: Sequence[RankSchedule], edges: Int64s
) -> tuple[Floats, NDArray[np.str_]]:
    """What the time of each edge is spent on, up to three things in their order.

    Returns:
        (ns, part): edges x things; 0 ns where there are fewer.
    """
    shape, tasks = graph.shape, [schedule.tasks for schedule in schedules]
    kind, rank, weight = shape.kind[edges], shape.rank[edges], graph.weight[edges]
    place = np.cumsum([0, *map(len, tasks)])[rank] + shape.task[edges]

    def of_task(name: str) -> NDArray[Any]:
        found: NDArray[Any] = np.concatenate([getattr(each, name) for each in tasks])[place]
        return found

    runs, batch, host, launch = (
        kind == each for each in (Edge.RUN, Edge.BATCH, Edge.HOST, Edge.LAUNCH)
    )
    latency = np.array([schedule.latency for schedule in schedules])[rank]
    own = np.where(launch, of_task("first_host"), of_task("host"))
    way = np.where(launch, latency, 0.0)
    before = np.where(runs, of_task("lag"), latency)
    by_host, works = host | launch, runs | (kind == Edge.LAST)
    ns = [
        np.select([by_host, batch, works], [weight - own - way, weight, before]),
        np.select([by_host, works], [own, weight - before]),
        way,
    ]
    words = [
        np.select([by_host | batch, runs], ["data-wait", "delay"], "launch"),
        np.where(by_host, "host", of_task("kind")),
        np.full(len(edges), "launch"),
    ]
    return np.stack(ns, axis=1), np.stack(words, axis=1)

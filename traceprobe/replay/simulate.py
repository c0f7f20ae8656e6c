"""When everything happens: the longest ways through the graph of what is played."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from traceprobe.replay.graph import Graph, Shape, Shapes, graph_of
from traceprobe.replay.tasks import Floats, RankSchedule

TOGETHER, MOST_TIMES = 64, 8_000_000
"""Scenarios that are played at once, at most, and times of their edges."""


def simulate(schedules: Sequence[RankSchedule], shapes: Shapes | None = None) -> float:
    """Step of the slowest rank, ns; ranks that wait for each other are equally fast.

    Args:
        shapes: those of what was played before, which are not looked for again.
    """
    return max(simulate_ranks([schedules], shapes)[0])


def simulate_all(
    scenarios: Iterable[Sequence[RankSchedule]], shapes: Shapes | None = None
) -> list[float]:
    """The same of many scenarios."""
    return [max(ranks) for ranks in simulate_ranks(scenarios, shapes)]


def simulate_ranks(
    scenarios: Iterable[Sequence[RankSchedule]], shapes: Shapes | None = None
) -> list[list[float]]:
    """The step of each rank, ns, in many scenarios; those that differ in times alone play at once.

    Of equal ones, here or in what was played before, one is played.

    Args:
        scenarios: the schedules of all ranks; those of an iterator are made when it is their turn.
    """
    shapes = {} if shapes is None else shapes
    waiting: dict[int, dict[bytes, Graph]] = {}
    asked: list[tuple[list[tuple[Shape, bytes]], int]] = []
    for schedules in scenarios:
        graphs = graphs_of(schedules, shapes)
        asked.append(([(graph.shape, graph.key) for graph in graphs], schedules[0].iterations))
        for graph in graphs:
            if graph.key in graph.shape.played:
                continue
            alike = waiting.setdefault(id(graph.shape), {})
            alike[graph.key] = graph
            if len(alike) >= min(TOGETHER, max(MOST_TIMES // max(len(graph.weight), 1), 1)):
                _play(list(alike.values()))
                alike.clear()
    for alike in waiting.values():
        if alike:
            _play(list(alike.values()))
    return [
        [step / count for shape, key in mine for step in shape.played[key]] for mine, count in asked
    ]


def _play(graphs: Sequence[Graph]) -> None:
    """Play some scenarios of one shape."""
    shape = graphs[0].shape
    instants = shape.reduction.instants(np.stack([graph.weight for graph in graphs], axis=1))
    for graph, ranks in zip(graphs, step_lengths(shape, instants).T.tolist(), strict=True):
        shape.played[graph.key] = ranks


def graphs_of(schedules: Sequence[RankSchedule], shapes: Shapes) -> list[Graph]:
    """One graph of all ranks, or one of each where their collectives do not fit together."""
    together = graph_of(schedules, shapes)
    if together is not None:
        return [together]
    alone = [graph_of([schedule], shapes) for schedule in schedules]
    return [graph for graph in alone if graph is not None]


def step_lengths(shape: Shape, instants: Floats) -> Floats:
    """From the end of the last cycle but one to that of the last, by rank, ns.

    Args:
        instants: ends of tasks at least; further axes are kept.
    """
    done = [[instants[cycle].max(axis=0) for cycle in ends] for ends in shape.ends]
    return np.array([np.maximum(last, before) - before for *_, before, last in done])


def longest(graph: Graph) -> Floats:
    """When each instant is, ns: the longest way to it from the beginning."""
    edges, shape = graph.shape.incoming, graph.shape
    found = np.zeros(len(shape.order))
    found[shape.target] = -np.inf
    when = found.tolist()
    columns = (shape.source[edges], shape.target[edges], graph.weight[edges])
    for source, target, weight in zip(*(column.tolist() for column in columns), strict=True):
        after = when[source] + weight
        if after > when[target]:
            when[target] = after
    return np.array(when)

"""When everything happens: the longest ways through the graph of what is played."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.replay.graph import Graph, Shape, graph_of
from traceprobe.replay.tasks import Floats, Int64s, RankSchedule

TOGETHER = 64
"""Scenarios that are played at once."""


def simulate(schedules: Sequence[RankSchedule], *, balanced: bool = False) -> float:
    """Step of the slowest rank, ns; ranks that wait for each other are equally fast.

    Args:
        balanced: the mean of the ranks instead, as if their work had been shared out evenly.
    """
    return simulate_all([schedules], balanced=balanced)[0]


def simulate_all(
    scenarios: Sequence[Sequence[RankSchedule]], *, balanced: bool = False
) -> list[float]:
    """The same of many scenarios; those that differ in times alone are played at once."""
    shapes: dict[bytes, Shape] = {}
    alike: dict[int, list[tuple[int, Graph]]] = {}
    steps: list[list[float]] = [[] for _ in scenarios]
    for number, schedules in enumerate(scenarios):
        for graph in graphs_of(schedules, shapes):
            alike.setdefault(id(graph.shape), []).append((number, graph))
    for graphs in alike.values():
        for low in range(0, len(graphs), TOGETHER):
            some = graphs[low : low + TOGETHER]
            instants = longest(some[0][1].shape, np.stack([g.weight for _, g in some], axis=1))
            ranks = step_lengths(some[0][1].shape, instants)
            for place, (number, _) in enumerate(some):
                steps[number] += ranks[:, place].tolist()
    iterations = [schedules[0].iterations for schedules in scenarios]
    pick = (lambda each: sum(each) / len(each)) if balanced else max
    return [pick(each) / count for each, count in zip(steps, iterations, strict=True)]


def graphs_of(schedules: Sequence[RankSchedule], shapes: dict[bytes, Shape]) -> list[Graph]:
    """One graph of all ranks, or one of each where their collectives do not fit together."""
    together = graph_of(schedules, shapes)
    if together is not None:
        return [together]
    alone = [graph_of([schedule], shapes) for schedule in schedules]
    return [graph for graph in alone if graph is not None]


def step_lengths(shape: Shape, instants: Floats) -> Floats:
    """From the end of the last cycle but one to that of the last, by rank and scenario, ns."""
    done = [[instants[cycle].max(axis=0) for cycle in ends] for ends in shape.ends]
    return np.array([np.maximum(last, before) - before for *_, before, last in done])


def longest(shape: Shape, weight: Floats) -> Floats:
    """When each instant is, by scenario: the longest way to it from the beginning.

    Args:
        weight: ns, by edge and scenario.
    """
    by_target, begin = incoming(shape)
    source, weight = shape.source[by_target], weight[by_target]
    instants = np.zeros((len(shape.order), weight.shape[1]))
    if weight.shape[1] == 1:
        found, sources, weights = [0.0] * len(instants), source.tolist(), weight[:, 0].tolist()
        for instant, low, high in begin:
            found[instant] = max(
                [found[sources[edge]] + weights[edge] for edge in range(low, high)]
            )
        instants[:, 0] = found
        return instants
    rows = list(instants)
    for instant, low, high in begin:
        np.add(rows[source[low]], weight[low], out=rows[instant])
        for edge in range(low + 1, high):
            np.maximum(rows[instant], rows[source[edge]] + weight[edge], out=rows[instant])
    return instants


def incoming(shape: Shape) -> tuple[Int64s, list[tuple[int, int, int]]]:
    """Edges by the place of their targets in the order, and which of them lead to each instant.

    Returns:
        (edges, instants): numbers of edges; instant, and the range of `edges` that leads to it, of
        those that any edge leads to, in their order.
    """
    place = np.empty(len(shape.order), np.int64)
    place[shape.order] = np.arange(len(shape.order))
    by_target = np.argsort(place[shape.target], kind="stable")
    counts = np.bincount(place[shape.target], minlength=len(shape.order))
    high = np.cumsum(counts)
    some = np.flatnonzero(counts)
    ranges = zip(
        shape.order[some].tolist(), (high - counts)[some].tolist(), high[some].tolist(), strict=True
    )
    return by_target, list(ranges)

"""The same longest ways through fewer instants, for many scenarios at once.

Only the ends of tasks are asked for, and most instants between them add nothing of their own:

- An instant of the host to which one edge leads comes after the one before by the length of that
  edge; so a line of them is a running sum from the last instant at which the host waited.
- A start that leads to nothing but its own end is a part of the way to that.
- Ends that follow each other on a stream, and otherwise depend on one instant of the host alone,
  are a running maximum: with p the way from the end before and c that from the instant h, end k is
  max(end k-1 + p k, h + c k) = P k + max(end 0, max over j <= k of h + c j - P j), P the sum of p.

What is left are a few instants for each time that streams, hosts and ranks wait for one another.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from traceprobe.replay.tasks import Bools, Floats, Int64s

NONE = -1
SHORT = 8
"""Ends in a row that are not worth a running maximum: one after the other is as fast."""


class Run(NamedTuple):
    """An instant, and ends of tasks that follow it on its stream.

    Args:
        first: the instant. low, high: edges that lead to it.
        rest: places of the ends that follow it, as a range of `Reduction.following`.
        root: instant of the host that they depend on.
    """

    first: int
    low: int
    high: int
    rest: slice
    root: int


class Reduction(msgspec.Struct, frozen=True):
    """How to find the ends of all tasks from the weights of all edges.

    Args:
        lines: instants of the host in chains, each after the one that it depends on alone.
        into: the edge that leads to each of them; NONE to those that begin a chain.
        head: place in `lines` of the beginning of each chain.
        place: of each instant in `lines`; NONE of others.
        edges: those that are left; `run` is the edge from the start to the end of the task that
            each leads to through a start that is left out, else NONE.
        source: of the edges, of which some are parallel: `begin` are the first of each.
        runs: in an order in which each depends on earlier ones.
        following: ends in runs after the first; `before` and `rooted` the edges to each.
    """

    lines: Int64s
    into: Int64s
    head: Int64s
    place: Int64s
    origin: Int64s
    edges: Int64s
    run: Int64s
    begin: Int64s
    source: Int64s
    runs: list[Run]
    following: Int64s
    before: Int64s
    rooted: Int64s
    count: int

    def instants(self, weight: Floats) -> Floats:
        """When each end of a task is, by scenario; of other instants not all are found.

        Args:
            weight: ns, by edge and scenario.
        """
        spent = np.where((self.into == NONE)[:, None], 0.0, weight[self.into])
        spent = np.cumsum(spent, axis=0)
        spent -= spent[self.head]
        ways = weight[self.edges]
        on_line = np.flatnonzero(self.place[self.origin] != NONE)
        ways[on_line] += spent[self.place[self.origin[on_line]]]
        through = np.flatnonzero(self.run != NONE)
        ways[through] += weight[self.run[through]]
        if len(ways):
            ways = np.maximum.reduceat(ways, self.begin, axis=0)
        found = np.zeros((self.count, weight.shape[1]))
        add, maximum = np.add, np.maximum  # the loop is mostly what it takes to call them
        way, other = list(ways), np.empty(weight.shape[1])
        rows = {instant: found[instant] for instant in set(self.source.tolist())}
        source = [rows[instant] for instant in self.source.tolist()]
        for first, low, high, rest, root in self.runs:
            mine = found[first]
            add(source[low], way[low], mine)
            for edge in range(low + 1, high):
                add(source[edge], way[edge], other)
                maximum(mine, other, out=mine)
            if root != NONE:
                behind = np.cumsum(ways[self.before[rest]], axis=0)
                alone = found[root] + ways[self.rooted[rest]] - behind
                maximum(alone[0], mine, out=alone[0])
                maximum.accumulate(alone, axis=0, out=alone)
                found[self.following[rest]] = alone + behind
        return found


def reduction(
    source: Int64s, target: Int64s, order: Int64s, host: Int64s, start: Int64s, end: Int64s
) -> Reduction:
    """What can be left out of a graph.

    Args:
        source, target: instants that an edge joins.
        order: instants, each after all that it depends on.
        host, start, end: those of the tasks.
    """
    count = len(order)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    into, out = np.bincount(target, minlength=count), np.bincount(source, minlength=count)
    is_host, is_end = _marked(host, count), _marked(end, count)
    edge_to = np.full(count, NONE)
    edge_to[target] = np.arange(len(target))
    parent = np.where(edge_to == NONE, NONE, source[edge_to])
    chained = is_host & (into == 1) & (parent != NONE) & is_host[parent]
    head = _heads(np.where(chained, parent, np.arange(count)))
    lines = np.flatnonzero(is_host)
    lines = lines[np.lexsort((place[lines], head[lines]))]
    at = np.full(count, NONE)
    at[lines] = np.arange(len(lines))

    passed = _marked(start, count) & (out == 1)
    run_of = np.full(count, NONE)
    own = passed[source]
    run_of[source[own]] = np.flatnonzero(own)
    edges = np.flatnonzero(~chained[target] & ~own)
    origin = source[edges]
    through = run_of[target[edges]]
    reached = np.where(through == NONE, target[edges], target[through])
    left = head[origin]
    by = np.lexsort((left, place[reached]))
    edges, origin, through, reached, left = (
        column[by] for column in (edges, origin, through, reached, left)
    )
    same = (reached[1:] == reached[:-1]) & (left[1:] == left[:-1])
    begin = np.flatnonzero(np.concatenate([[True], ~same])) if len(edges) else edges
    reached, left = reached[begin], left[begin]
    runs, following, before, rooted = _runs(reached, left, place, is_host, is_end)
    return Reduction(
        lines=lines,
        into=np.where(chained[lines], edge_to[lines], NONE),
        head=at[head[lines]],
        place=np.where(chained, at, NONE),
        origin=origin,
        edges=edges,
        run=through,
        begin=begin,
        source=left,
        runs=runs,
        following=following,
        before=before,
        rooted=rooted,
        count=count,
    )


def _runs(
    target: Int64s, source: Int64s, place: Int64s, is_host: Bools, is_end: Bools
) -> tuple[list[Run], Int64s, Int64s, Int64s]:
    """Instants in runs; edges are sorted by the places of their targets.

    Returns:
        (runs, following, before, rooted), as in `Reduction`.
    """
    first = np.flatnonzero(np.concatenate([[True], target[1:] != target[:-1]]))
    if not len(target):
        return [], first, first, first
    instants = target[first]
    high = np.append(first[1:], len(target))
    row = np.full(len(place), NONE)
    row[instants] = np.arange(len(instants))

    hosts = np.add.reduceat(is_host[source].astype(np.int64), first)
    of_host = np.maximum.reduceat(np.where(is_host[source], np.arange(len(source)), NONE), first)
    of_end = np.maximum.reduceat(np.where(is_end[source], np.arange(len(source)), NONE), first)
    root = np.where(hosts == 1, source[of_host], NONE)
    plain = is_end[instants] & (high - first == 2) & (hosts == 1) & (of_end != NONE)
    previous = np.where(plain, row[source[of_end]], NONE)
    plain &= (previous != NONE) & (root[previous] == root)
    # Of several that come after the same end, the first goes on with its run.
    _, chosen = np.unique(previous[plain], return_index=True)
    goes_on = np.zeros(len(instants), bool)
    goes_on[np.flatnonzero(plain)[chosen]] = True
    lead = _heads(np.where(goes_on, previous, np.arange(len(instants))))
    goes_on &= np.bincount(lead, minlength=len(lead))[lead] > SHORT
    lead = np.where(goes_on, lead, np.arange(len(instants)))
    rest = np.flatnonzero(goes_on)
    rest = rest[np.argsort(lead[rest], kind="stable")]
    leads = np.flatnonzero(~goes_on)
    low_rest = np.searchsorted(lead[rest], leads, "left")
    high_rest = np.searchsorted(lead[rest], leads, "right")
    alone = low_rest == high_rest
    rooted = np.where(alone, NONE, root[leads])
    columns = (instants[leads], first[leads], high[leads], low_rest, high_rest, rooted)
    runs = [
        Run(instant, low, above, slice(begin, after), of)
        for instant, low, above, begin, after, of in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
    return runs, instants[rest], of_end[rest], of_host[rest]


def _marked(instants: Int64s, count: int) -> Bools:
    found = np.zeros(count, bool)
    found[instants] = True
    return found


def _heads(parent: Int64s) -> Int64s:
    """The beginning of the chain of each; one that begins a chain is its own parent."""
    while True:
        further = parent[parent]
        if (further == parent).all():
            return parent
        parent = further

"""The tasks of all ranks, played several times in a row, as a graph of instants.

An instant is when the host has made a task's launches, when the task starts, and when it ends; when
all ranks of a collective are ready; when a batch is there; and the beginning of everything. An edge
says that one instant is at least so much later than another:

- The host of a line of threads goes on after the task before, once the task that it awaits has
  ended and its batch is there, and after the time that it waits for data and needs itself.
- A task starts once its stream is free, its first launch is made and what it needs has ended.
- It ends after its operations have run, and not before the last of them, launched last, could.
- A collective starts on all ranks of its group when the last of them is ready.

Since no edge leads back, each instant is the length of the longest way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from hashlib import sha256
from math import ceil

import msgspec
import numpy as np

from traceprobe.replay.reduction import Reduction, reduction
from traceprobe.replay.tasks import ALONE, Bools, Floats, Int64s, RankSchedule, Tasks

CYCLES, ITERATIONS = 3, 4
"""The iterations are played so many times, and until there are so many of them; the last cycle
counts, when the beginning is forgotten."""
HOST, START, END = range(3)
"""Instants of a task."""


class Edge(IntEnum):
    """What the time of an edge is spent on."""

    ORDER = 0  # nothing: one after the other
    HOST = 1  # the host, waiting for data first, until all launches of a task are made
    LAUNCH = 2  # the same until the first is made, and then on its way to the device
    RUN = 3  # the operations of a task
    LAST = 4  # the last operation of a task, from its launch on
    BATCH = 5  # the loader


class Shape(msgspec.Struct, frozen=True, dict=True):
    """Instants and edges without times; many scenarios share one.

    Args:
        source, target: instants that an edge joins, sorted by `order` of the target.
        kind: `Edge` of each edge. rank, task: whose time it is.
        order: instants, each after all that it depends on.
        ends: per rank, the ends of its tasks, in rows of one cycle each.
    """

    source: Int64s
    target: Int64s
    kind: Int64s
    rank: Int64s
    task: Int64s
    order: Int64s
    ends: Sequence[Int64s]

    @cached_property
    def reduction(self) -> Reduction:
        """How the ends of tasks are found for many scenarios at once."""
        end = np.concatenate([each.ravel() for each in self.ends])
        start, host = end + (START - END), end + (HOST - END)
        return reduction(self.source, self.target, self.order, host, start, end)

    @cached_property
    def played(self) -> dict[bytes, list[float]]:
        """The step of each rank, ns, in what was played with this shape, by the keys of graphs."""
        return {}

    @cached_property
    def time(self) -> Int64s:
        """Place of the time of each edge in those of all ranks, as `_times` has them."""
        counts = np.array([each.shape[1] for each in self.ends])
        before = np.concatenate([[0], len(Edge) * np.cumsum(counts[:-1])])
        found: Int64s = before[self.rank] + self.kind * counts[self.rank] + self.task
        return found

    @cached_property
    def incoming(self) -> Int64s:
        """Numbers of the edges by the place of their targets in the order."""
        return np.argsort(self.place[self.target], kind="stable")

    @cached_property
    def place(self) -> Int64s:
        """Of each instant in the order."""
        place = np.empty(len(self.order), np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    @cached_property
    def first_incoming(self) -> Int64s:
        """Where in `incoming` the edges to each instant of the order begin; one more at the end."""
        counts = np.bincount(self.place[self.target], minlength=len(self.order))
        return np.concatenate([[0], np.cumsum(counts)])


Shapes = dict[bytes, Shape | None]
"""Shapes that were found, by all that they depend on; None where no order fits."""


class Graph(msgspec.Struct, frozen=True):
    """A `Shape` with the times of one scenario.

    Args:
        weight: of each edge, ns.
        key: the same for equal times alone.
    """

    shape: Shape
    weight: Floats
    key: bytes


class _Edges(msgspec.Struct, frozen=True):
    source: Int64s
    target: Int64s
    kind: Int64s
    task: Int64s


def graph_of(schedules: Sequence[RankSchedule], shapes: Shapes) -> Graph | None:
    """The graph of ranks that play together; None where their collectives are in no common order.

    Args:
        shapes: those found before; a new one is added.
    """
    key = _key(schedules)
    if key not in shapes:
        shapes[key] = _shape(schedules)
    shape = shapes[key]
    if shape is None:
        return None
    times = np.concatenate([_times(schedule).ravel() for schedule in schedules])
    return Graph(shape, times[shape.time], sha256(times.tobytes()).digest())


def _key(schedules: Sequence[RankSchedule]) -> bytes:
    """All that the shape of ranks that play together depends on."""
    columns: list[Int64s] = []
    for schedule in schedules:
        tasks, loads = schedule.tasks, schedule.period is not None
        columns.append(np.array([schedule.iterations, len(tasks), len(tasks.row), loads]))
        columns += [tasks.line, tasks.stream, tasks.awaits, tasks.row, tasks.back]
        if loads:
            columns.append(_fetching(tasks).astype(np.int64))
        if len(schedules) > 1:
            columns += [tasks.group, tasks.iteration]
    return np.concatenate(columns).tobytes()


def _times(schedule: RankSchedule) -> Floats:
    """What an edge of each kind takes with each task, ns; edges x tasks."""
    tasks, latency = schedule.tasks, schedule.latency
    times = np.zeros((len(Edge), len(tasks)))
    if schedule.period is None:
        times[[Edge.HOST, Edge.LAUNCH]] = tasks.data_wait
    else:
        times[Edge.BATCH] = schedule.period
    times[Edge.HOST] += tasks.host
    times[Edge.LAUNCH] = times[Edge.LAUNCH] + tasks.first_host + latency
    times[Edge.RUN] = tasks.duration + tasks.lag
    times[Edge.LAST] = latency + tasks.tail
    return times


def _shape(schedules: Sequence[RankSchedule]) -> Shape | None:
    """The shape of ranks that play together; None where no order fits all their collectives."""
    found, ends, first = [], [], 1
    cycles = max(CYCLES, ceil(ITERATIONS / min(p.iterations for p in schedules)))
    ready = [np.zeros(0, np.int64)] * len(schedules)
    for number, schedule in enumerate(schedules):
        count = len(schedule.tasks) * cycles
        ready[number] = first + 3 * np.arange(count, dtype=np.int64)
        ends.append((ready[number] + END).reshape(cycles, -1))
        first += 3 * count
    meets, first = _meetings(schedules, ready, cycles, first)
    for number, schedule in enumerate(schedules):
        edges, first = _edges(schedule, ready[number], meets[number], cycles, first)
        found.append(edges)
    source, target, kind, task = (
        np.concatenate([getattr(edges, name) for edges in found])
        for name in ("source", "target", "kind", "task")
    )
    rank = np.repeat(np.arange(len(found)), [len(edges.source) for edges in found])
    if len(schedules) == 1:  # all but batches come in the order of their numbers
        tasks_end = 1 + 3 * len(ready[0])
        order = np.concatenate([[0], np.arange(tasks_end, first), np.arange(1, tasks_end)])
        return Shape(source, target, kind, rank, task, order, ends)
    found_order = _sorted(source, target, first)
    if found_order is None:
        return None
    return Shape(source, target, kind, rank, task, found_order, ends)


def _edges(
    schedule: RankSchedule, host: Int64s, meets: Int64s, cycles: int, first: int
) -> tuple[_Edges, int]:
    """Edges of one rank.

    Args:
        host: instants of the host. meets: instants at which collectives start, 0 without one.
        first: number of the next new instant.
    """
    tasks = schedule.tasks
    count = len(tasks)
    task = np.tile(np.arange(count, dtype=np.int64), cycles)
    start, end = host + START, host + END
    before = _previous(np.tile(tasks.line, cycles), host)
    on_stream = _previous(np.tile(tasks.stream, cycles), end)
    now = np.arange(len(host), dtype=np.int64)
    reached = [(now, before)]
    awaits = np.tile(tasks.awaits, cycles)
    waits = np.flatnonzero((awaits > 0) & (awaits <= now))
    reached.append((waits, end[waits - awaits[waits]]))
    parts: list[tuple[Int64s, Int64s, Edge, Int64s]] = []
    if schedule.period is not None:
        fetching = _fetching(tasks)
        at = np.flatnonzero(np.tile(fetching, cycles))
        batches = first + np.arange(len(at), dtype=np.int64)
        first += len(at)
        chain = np.concatenate([[0], batches[:-1]]) if len(at) else batches
        parts.append((chain, batches, Edge.BATCH, task[at]))
        reached.append((at, batches))
    for which, origin in reached:
        parts.append((origin, host[which], Edge.HOST, task[which]))
        parts.append((origin, start[which], Edge.LAUNCH, task[which]))
    later = np.flatnonzero(on_stream)
    parts.append((on_stream[later], start[later], Edge.ORDER, task[later]))
    row = (tasks.row[None, :] + count * np.arange(cycles)[:, None]).ravel()
    back = np.tile(tasks.back, cycles)
    known = (back > 0) & (back <= row)
    row, needed = row[known], (row - back)[known]
    parts.append((end[needed], start[row], Edge.ORDER, task[row]))
    together = np.flatnonzero(meets)
    parts.append((start[together], meets[together], Edge.ORDER, task[together]))
    parts.append((np.where(meets > 0, meets, start), end, Edge.RUN, task))
    parts.append((host, end, Edge.LAST, task))
    return (
        _Edges(
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            np.repeat([int(part[2]) for part in parts], [len(part[0]) for part in parts]),
            np.concatenate([part[3] for part in parts]),
        ),
        first,
    )


def _previous(key: Int64s, instants: Int64s) -> Int64s:
    """For each place the instant of the place before with the same key; 0, the beginning."""
    found = np.zeros(len(key), np.int64)
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    found[order[1:][same]] = instants[order[:-1][same]]
    return found


def _fetching(tasks: Tasks) -> Bools:
    """The first task of each iteration that waits for data; of one that does not, its first task.

    An iteration whose batch was there has taken one, too: what the loader made before the capture
    began hides its pace from some of the iterations, and it makes a batch for each.
    """
    # Sorted by iteration, those that wait first; in each in launch order.
    order = np.lexsort((tasks.data_wait == 0, tasks.iteration))
    _, first = np.unique(tasks.iteration[order], return_index=True)
    found = np.zeros(len(tasks), bool)
    found[order[first]] = True
    return found


def _meetings(
    schedules: Sequence[RankSchedule], host: Sequence[Int64s], cycles: int, first: int
) -> tuple[list[Int64s], int]:
    """For each task the instant at which it starts with those of other ranks; 0 without any.

    Messages of a group meet in their order, where all ranks that have the group have equally many
    of them in an iteration.
    """
    meets = [np.zeros(len(instants), np.int64) for instants in host]
    if len(schedules) < 2:
        return meets, first
    members: dict[int, list[tuple[int, Int64s]]] = {}
    for rank, schedule in enumerate(schedules):
        for group in np.unique(schedule.tasks.group).tolist():
            if group != ALONE:
                at = np.flatnonzero(schedule.tasks.group == group)
                members.setdefault(group, []).append((rank, at))
    for together in members.values():
        counts = {
            tuple(np.bincount(schedules[rank].tasks.iteration[at]).tolist())
            for rank, at in together
        }
        if len(together) < 2 or len(counts) > 1:
            continue
        number = len(together[0][1])
        for rank, at in together:
            size = len(schedules[rank].tasks)
            places = (at[None, :] + size * np.arange(cycles)[:, None]).ravel()
            meets[rank][places] = first + np.arange(number * cycles)
        first += number * cycles
    return meets, first


def _sorted(source: Int64s, target: Int64s, count: int) -> Int64s | None:
    """Instants in an order in which all edges lead on; None where there is none (Kahn, 1962)."""
    missing = np.bincount(target, minlength=count).tolist()
    by_source = np.argsort(source, kind="stable")
    leads = target[by_source].tolist()
    begin = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=count))]).tolist()
    order = [instant for instant in range(count) if not missing[instant]]
    for instant in order:
        for place in range(begin[instant], begin[instant + 1]):
            other = leads[place]
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    return np.array(order, np.int64) if len(order) == count else None

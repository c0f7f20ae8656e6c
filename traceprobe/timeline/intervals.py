"""Sets of time as sorted, disjoint, half-open intervals; every operation is vectorised.

All busy times, overlaps and partitions are measures of such sets, never sums of durations: kernels
overlap across streams, and since Hopper even on one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceprobe.model.codes import Int64s


class Intervals(NamedTuple):
    """Disjoint intervals [t0, t1), ascending, none empty. Both arrays int64 ns, equally long."""

    t0: Int64s
    t1: Int64s


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
_FAR_MORE = 4
"""Instants to a start, from which on these are looked for among the instants."""


def union(t0: Int64s, t1: Int64s) -> Intervals:
    """The instants covered by any of the given intervals, in any order, overlapping or not."""
    keep = t1 > t0
    start, end = (t0, t1) if keep.all() else (t0[keep], t1[keep])
    if not len(start):
        return EMPTY
    if (start[1:] > end[:-1]).all():  # as they are in most sets
        return Intervals(start, end)
    if (start[1:] >= start[:-1]).all():
        reach = np.maximum.accumulate(end)
    else:
        # Nothing covers the instant before the nth start exactly where n intervals end before it:
        # which end is whose does not matter.
        start, reach = np.sort(start, kind="stable"), np.sort(end, kind="stable")
    first = np.concatenate([[True], start[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(start[first], reach[last])


def merge(*sets: Intervals) -> Intervals:
    """Union of sets."""
    some = [s for s in sets if len(s.t0)]
    if len(some) < 2:
        return union(*some[0]) if some else EMPTY
    return union(np.concatenate([s.t0 for s in some]), np.concatenate([s.t1 for s in some]))


def complement(a: Intervals, low: int, high: int) -> Intervals:
    """The part of [low, high) that is not in `a`."""
    inner = clip(a, low, high)
    start = np.concatenate([[low], inner.t1])
    end = np.concatenate([inner.t0, [high]])
    keep = end > start
    return Intervals(start[keep], end[keep])


def clip(a: Intervals, low: int, high: int) -> Intervals:
    """The part of `a` inside [low, high)."""
    if high <= low:
        return EMPTY
    inside = slice(np.searchsorted(a.t1, low, "right"), np.searchsorted(a.t0, high))
    return Intervals(np.maximum(a.t0[inside], low), np.minimum(a.t1[inside], high))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Instants in both sets."""
    if len(a.t0) > len(b.t0):  # fewer to look up
        a, b = b, a
    low = np.searchsorted(b.t1, a.t0, "right")
    high = np.searchsorted(b.t0, a.t1, "left")
    count = np.maximum(high - low, 0)
    left = np.repeat(np.arange(len(a.t0)), count)
    right = np.arange(len(left)) + np.repeat(low - (np.cumsum(count) - count), count)
    return Intervals(np.maximum(a.t0[left], b.t0[right]), np.minimum(a.t1[left], b.t1[right]))


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Instants in `a` and not in `b`."""
    if not len(a.t0):
        return EMPTY
    return intersect(a, complement(b, int(a.t0[0]), int(a.t1[-1])))


def length(a: Intervals) -> int:
    """How long a set is, ns."""
    return int((a.t1 - a.t0).sum())


def count_begun(starts: Int64s, instants: Int64s) -> Int64s:
    """How many of `starts`, which ascend, are at or before each instant."""
    # Of many instants in order few starts are looked for among them, not the other way round.
    if _FAR_MORE * len(starts) < len(instants) and (instants[1:] >= instants[:-1]).all():
        first = np.searchsorted(instants, starts)
        reached = np.diff(first, prepend=0, append=len(instants))
        return np.repeat(np.arange(len(starts) + 1), reached)
    return np.searchsorted(starts, instants, "right")


def measure_until(a: Intervals, instants: Int64s) -> Int64s:
    """Length of the part of `a` before each instant."""
    if not len(a.t0) or not len(instants):
        return np.zeros(len(instants), dtype=np.int64)
    return _measured_until(a, _before(a), instants)


def measure_between(a: Intervals, t0: Int64s, t1: Int64s) -> Int64s:
    """Length of the part of `a` from each of the first instants to each of the second.

    Less than 0 where the second is the earlier one.
    """
    if not len(a.t0) or not len(t0):
        return np.zeros(len(t0), dtype=np.int64)
    before = _before(a)
    return _measured_until(a, before, t1) - _measured_until(a, before, t0)


def _before(a: Intervals) -> Int64s:
    """Length of the part of `a` before each of its intervals, and of all."""
    return np.concatenate([[0], np.cumsum(a.t1 - a.t0)])


def _measured_until(a: Intervals, before: Int64s, instants: Int64s) -> Int64s:
    at = count_begun(a.t0, instants)
    reach = np.concatenate([[np.iinfo(np.int64).min], a.t1])[at]  # of those that begin before
    measured: Int64s = before[at] - (np.maximum(reach, instants) - instants)
    return measured


def per_window(a: Intervals, edges: Int64s) -> Int64s:
    """Length of `a` inside each window [edges[k], edges[k + 1])."""
    return np.diff(measure_until(a, edges))


def sum_per_window(instants: Int64s, ns: Int64s, edges: Int64s) -> Int64s:
    """Sum of what belongs to instants, in the windows that they are in."""
    at = np.searchsorted(edges, instants, "right") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    sums = np.zeros(len(edges) - 1, dtype=np.int64)
    np.add.at(sums, at[inside], ns[inside])
    return sums


def innermost(t0: Int64s, t1: Int64s, label: Int64s) -> tuple[Int64s, Int64s]:
    """Labels of the innermost of several, arbitrarily overlapping, ranges as a step function.

    The innermost range at an instant is the one that started last among those that hold it.

    Returns:
        (instants, labels): `labels[i]` holds from `instants[i]` to the next instant; -1 is none.
    """
    order = np.lexsort((-t1, t0))
    start, end, labels = t0[order], t1[order], label[order]
    edges = np.unique(np.concatenate([start, end]))
    result = np.full(len(edges), -1, dtype=np.int64)
    # Later starts overwrite earlier ones; ranges are annotations, thousands at most, not events.
    low, high = np.searchsorted(edges, start), np.searchsorted(edges, end)
    for a, b, value in zip(low.tolist(), high.tolist(), labels.tolist(), strict=True):
        result[a:b] = value
    return edges, result


def look_up(steps: tuple[Int64s, Int64s], instants: Int64s) -> Int64s:
    """Value of a step function (see `innermost`) at each instant; -1 before the first."""
    edges, values = steps
    at = count_begun(edges, instants) - 1
    return (
        np.where(at >= 0, values[np.maximum(at, 0)], -1)
        if len(edges)
        else np.full(len(instants), -1)
    )

"""Interval sets against brute force on small sets of instants: every function, every edge."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceprobe.timeline import intervals as iv
from traceprobe.timeline.intervals import EMPTY, Intervals

LOW, HIGH = -3, 12
INSTANTS = range(LOW - 2, HIGH + 3)

quick = settings(max_examples=80, deadline=None)
times = st.integers(LOW, HIGH)
pairs = st.lists(st.tuples(times, times), max_size=7)
ranges = st.lists(st.tuples(times, times).map(sorted).map(tuple), max_size=7)
instants = st.lists(st.integers(LOW - 2, HIGH + 2), max_size=8)
edges = st.lists(times, max_size=6).map(sorted)


def array(values):
    return np.array(list(values), dtype=np.int64)


def columns(rows):
    return array(a for a, _ in rows), array(b for _, b in rows)


def length(intervals):
    return int((intervals.t1 - intervals.t0).sum())


def covered(rows):
    """The instants of half-open ranges; a range that ends before it starts has none."""
    return {t for a, b in rows for t in range(a, b)}


def intervals_of(members):
    """The canonical intervals of a set of instants, instant by instant."""
    starts = sorted(t for t in members if t - 1 not in members)
    ends = sorted(t + 1 for t in members if t + 1 not in members)
    return list(zip(starts, ends, strict=True))


def rows_of(a):
    assert a.t0.dtype == a.t1.dtype == np.int64
    return list(zip(a.t0.tolist(), a.t1.tolist(), strict=True))


sets = ranges.map(covered)


def make(members):
    return Intervals(*columns(intervals_of(members)))


@quick
@given(pairs)
def test_union_covers_the_instants_of_any_range_and_is_canonical(rows):
    assert rows_of(iv.union(*columns(rows))) == intervals_of(covered(rows))


@quick
@given(st.lists(sets, max_size=4))
def test_merge_is_the_union_of_sets(members):
    assert rows_of(iv.merge(*map(make, members))) == intervals_of(set().union(*members))


def test_ranges_that_touch_are_one_interval():
    assert rows_of(iv.union(array([5, 0]), array([9, 5]))) == [(0, 9)]
    assert rows_of(iv.union(array([6, 0]), array([9, 5]))) == [(0, 5), (6, 9)]


@quick
@given(sets, times, times)
def test_complement_is_what_is_missing_from_the_span(members, low, high):
    expected = set(range(low, high)) - members
    assert rows_of(iv.complement(make(members), low, high)) == intervals_of(expected)


@quick
@given(sets, times, times)
def test_clip_is_what_lies_in_the_span(members, low, high):
    expected = members & set(range(low, high))
    assert rows_of(iv.clip(make(members), low, high)) == intervals_of(expected)


@settings(quick, max_examples=200)
@given(sets, sets)
def test_intersect_and_subtract_are_those_of_sets(a, b):
    assert rows_of(iv.intersect(make(a), make(b))) == intervals_of(a & b)
    assert rows_of(iv.subtract(make(a), make(b))) == intervals_of(a - b)


@quick
@given(sets, sets)
def test_measures_add_up(a, b):
    one, two = make(a), make(b)
    assert length(one) == len(a)
    assert length(iv.merge(one, two)) + length(iv.intersect(one, two)) == len(a) + len(b)
    assert length(iv.subtract(one, two)) == len(a) - len(a & b)


@quick
@given(sets, instants)
def test_measure_until_counts_what_lies_before(members, asked):
    expected = [sum(t < limit for t in members) for limit in asked]
    assert iv.measure_until(make(members), array(asked)).tolist() == expected


@quick
@given(sets, instants)
def test_measure_between_counts_what_lies_from_one_instant_to_another(members, asked):
    limits = asked[::-1]
    expected = [
        sum(a <= t < b for t in members) - sum(b <= t < a for t in members)
        for a, b in zip(asked, limits, strict=True)
    ]
    found = iv.measure_between(make(members), array(asked), array(limits))
    assert found.tolist() == expected


@quick
@given(sets, edges)
def test_per_window_counts_what_lies_in_each_window(members, borders):
    expected = [len(members & set(range(a, b))) for a, b in pairwise(borders)]
    assert iv.per_window(make(members), array(borders)).tolist() == expected


def innermost_at(rows, t):
    """Label of the range that started last among those that hold an instant, or -1.

    Of ranges that start together the shorter one is inside.
    """
    inside = [(a, -b, label) for label, (a, b) in enumerate(rows) if a <= t < b]
    return max(inside)[2] if inside else -1


@quick
@given(ranges)
def test_the_innermost_range_is_the_one_that_started_last(rows):
    labels = array(range(len(rows)))
    found = iv.look_up(iv.innermost(*columns(rows), labels), array(INSTANTS))
    assert found.tolist() == [innermost_at(rows, t) for t in INSTANTS]


def test_an_outer_range_holds_again_after_an_inner_one_has_ended():
    steps = iv.innermost(array([0, 2, 3]), array([9, 5, 4]), array([10, 20, 30]))
    assert iv.look_up(steps, array(range(10))).tolist() == [10, 10, 20, 30, 20, *[10] * 4, -1]


@quick
@given(st.dictionaries(times, st.integers(0, 3), max_size=6), instants)
def test_a_step_function_holds_from_each_instant_to_the_next(steps, asked):
    at = sorted(steps)
    expected = [steps[max(t for t in at if t <= x)] if at and x >= at[0] else -1 for x in asked]
    seen = iv.look_up((array(at), array(steps[t] for t in at)), array(asked))
    assert seen.tolist() == expected


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (iv.union, (EMPTY.t0, EMPTY.t1)),
        (iv.merge, ()),
        (iv.merge, (EMPTY, EMPTY)),
        (iv.complement, (EMPTY, 5, 5)),
        (iv.complement, (EMPTY, 6, 5)),
        (iv.clip, (EMPTY, 0, 5)),
        (iv.intersect, (EMPTY, EMPTY)),
        (iv.subtract, (EMPTY, EMPTY)),
    ],
)
def test_nothing_gives_the_empty_set(function, arguments):
    assert rows_of(function(*arguments)) == []


def test_times_of_a_utc_clock_stay_exact():
    utc = 1_795_219_808_747_955_856
    a = iv.union(array([utc, utc + 3]), array([utc + 1, utc + 5]))
    assert iv.per_window(a, array([utc - 1, utc + 4, utc + 9])).tolist() == [2, 1]
    assert length(iv.complement(a, utc, utc + 5)) == 2


@quick
@given(edges, st.lists(times, max_size=40), st.booleans())
def test_starts_are_counted_up_to_instants_in_any_order(starts, asked, ordered):
    asked = sorted(asked) if ordered else asked
    found = iv.count_begun(array(starts), array(asked))
    assert found.tolist() == [sum(start <= instant for start in starts) for instant in asked]

"""Arrays behind the causes of idle time, against loops that say the same."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceprobe.model.codes import UNKNOWN
from traceprobe.timeline.idle import Gaps, _again, _most_so_far, _spent
from traceprobe.timeline.intervals import union


def ascending(least, most):
    return st.lists(st.integers(least, most), max_size=24).map(sorted)


@given(
    values=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    apart=st.sampled_from([1, 1 << 61]),
    data=st.data(),
)
def test_the_most_so_far_begins_anew_with_each_run(values, apart, data):
    """With values as large as 2 ** 61, runs cannot be told apart by adding to them."""
    begins = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    run = np.cumsum([0, *begins[1:]])
    scale = apart // 16 or 1
    expected, most = [], 0
    for place, value in enumerate(values):
        most = value if place and run[place] != run[place - 1] else max(most, value)
        expected.append(most * scale)
    found = _most_so_far(np.array(values, np.int64) * scale, run)
    assert found.tolist() == expected


@given(st.lists(st.sampled_from([UNKNOWN, 1, 2, 3, 40]), max_size=12))
def test_which_ops_are_of_a_launch_that_was_there_before(ids):
    expected = [id != UNKNOWN and id in ids[:place] for place, id in enumerate(ids)]
    assert _again(pl.Series(ids, dtype=pl.Int64)).tolist() == expected


@given(ascending(0, 60), ascending(0, 60))
def test_how_much_of_each_gap_is_in_a_part(edges, bounds):
    begins, ends = edges[: len(edges) // 2 * 2 : 2], edges[1::2]
    kept = [(a, b) for a, b in zip(begins, ends, strict=True) if a < b]
    t0, t1 = np.array(kept, np.int64).reshape(-1, 2).T
    none = np.zeros(len(t0), np.int64)
    gaps = Gaps(t0, t1, t0, t1, none, none, none)
    low, high = np.array(bounds[: len(bounds) // 2 * 2], np.int64).reshape(-1, 2).T
    part = union(low, high)
    inside = {
        t for a, b in zip(part.t0.tolist(), part.t1.tolist(), strict=True) for t in range(a, b)
    }
    assert _spent(part, gaps).tolist() == [len(inside & {*range(a, b)}) for a, b in kept]


@pytest.mark.parametrize("ids", [[], [UNKNOWN, UNKNOWN], [5, 6]])
def test_without_a_launch_of_several_ops_there_is_none(ids):
    assert not _again(pl.Series(ids, dtype=pl.Int64)).any()

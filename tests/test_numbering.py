"""Integers as places among the distinct ones, close together or far apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceprobe.model.numbering import narrow, numbered, row_order


@pytest.mark.parametrize("far", [1, 1 << 61])
def test_places_are_those_of_numpy(far):
    ids = np.random.default_rng(7).integers(-2, 3, 500) * far
    distinct, place = numbered(ids)
    expected = np.unique(ids, return_inverse=True)
    assert distinct.tolist() == expected[0].tolist()
    assert place.tolist() == expected[1].tolist()


@pytest.mark.parametrize(
    ("highest", "width"),
    [(127, np.int8), (128, np.int16), (1 << 15, np.int32), (1 << 31, np.int64)],
)
def test_numbers_are_as_narrow_as_they_can_be(highest, width):
    found = narrow(np.array([-1, highest]))
    assert found.dtype == width
    assert found.tolist() == [-1, highest]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(*3 * [st.integers(-2, 4)]), max_size=20),
    st.integers(1, 3),
)
def test_rows_are_ordered_by_all_keys_however_many_lead(rows, leads):
    keys = [np.array([row[n] for row in rows], dtype=np.int64) for n in range(3)]
    expected = sorted(range(len(rows)), key=rows.__getitem__)
    assert row_order(keys[:leads], keys[leads:]).tolist() == expected

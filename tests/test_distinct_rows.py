"""Distinct rows of columns of integers, dense or far apart."""

from __future__ import annotations

import numpy as np
import pytest

from traceprobe.ingest.joins import distinct_rows


@pytest.mark.parametrize("far", [1, 1 << 61])
def test_distinct_rows_are_those_of_numpy(far):
    random = np.random.default_rng(7)
    columns = [random.integers(-2, 3, 500) * far for _ in range(3)]
    found = np.stack(distinct_rows(*columns))
    assert found.tolist() == np.unique(np.stack(columns), axis=1).tolist()


def test_no_rows_have_no_distinct_ones():
    assert [len(column) for column in distinct_rows(np.empty(0, int), np.empty(0, int))] == [0, 0]

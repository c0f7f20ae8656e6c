"""Rows that are found by their ids, process by process."""

from __future__ import annotations

import numpy as np
import pytest

from traceprobe.ingest.joins import find_rows_of_processes
from traceprobe.model.codes import UNKNOWN

IDS = np.array([5, 7, 7, 5, 9])
PROCESSES = np.array([1, 1, 2, 2, 2])


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        pytest.param([[0, 1, 2, 3, 4]], [0, 3, 1, UNKNOWN, UNKNOWN], id="of-the-own-process"),
        pytest.param([[3], [0, 1]], [0, 3, 1, UNKNOWN, UNKNOWN], id="what-the-first-tier-lacks"),
        pytest.param([], 5 * [UNKNOWN], id="none"),
    ],
)
def test_an_id_is_looked_for_in_its_own_process(tiers, expected):
    wanted, owners = np.array([5, 5, 7, 9, UNKNOWN]), np.array([1, 2, 1, 1, 2])
    rows = [np.array(tier, dtype=np.int64) for tier in tiers]
    assert find_rows_of_processes(wanted, owners, IDS, PROCESSES, rows).tolist() == expected


def test_of_rows_with_one_id_the_first_in_order_is_found_in_the_first_tier_that_has_it():
    keys, process = np.array([4, 4, 4, 6]), np.zeros(4, dtype=np.int64)
    rows = [np.array([2, 1]), np.array([0, 3])]
    found = find_rows_of_processes(np.array([4, 6]), process[:2], keys, process, rows)
    assert found.tolist() == [2, 3]

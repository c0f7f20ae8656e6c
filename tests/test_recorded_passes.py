"""Backward passes that are recorded themselves are told from forward passes that run again."""

from __future__ import annotations

import numpy as np

from traceprobe.ingest.kineto.recorded_passes import in_recorded_nodes

NODE, OWN, NO = "node", 7, -1
AUTOGRAD = 2


def found(rows, thread=AUTOGRAD):
    """Which of the rows (begin, end, NODE or sequence number) are in recorded nodes."""
    is_node = np.array([row[2] == NODE for row in rows])
    operators = {
        "thread": np.full(len(rows), thread),
        "t0": np.array([row[0] for row in rows]),
        "t1": np.array([row[1] for row in rows]),
        "sequence": np.array([OWN if row[2] == NODE else row[2] for row in rows]),
    }
    return np.flatnonzero(in_recorded_nodes(operators, is_node, is_node)).tolist()


NEXT = [(900, 990, NODE), (910, 920, OWN)]
"""A further recorded node."""


def test_operators_of_nodes_whose_last_one_is_recorded():
    assert found([(0, 100, NODE), (10, 30, OWN), (40, 60, OWN), *NEXT]) == [1, 2, 4]


def test_a_node_beside_which_none_is_recorded_runs_again_what_it_needs():
    assert found([(0, 100, NODE), (10, 30, OWN)]) == []
    beside = [(900, 990, NODE), (910, 920, NO)]
    assert found([(0, 100, NODE), (10, 30, OWN), *beside]) == []
    without = [(500, 600, NODE)]
    assert found([(0, 100, NODE), (10, 30, OWN), *without, *NEXT]) == [1, 4]


def test_what_runs_again_comes_before_the_operators_of_the_node():
    again = [(0, 100, NODE), (10, 30, OWN), (40, 60, OWN), (70, 90, NO)]
    assert found([*again, *NEXT, (995, 999, NODE), (996, 997, OWN)]) == [5, 7]


def test_what_an_operator_calls_has_no_number_and_tells_nothing():
    assert found([(0, 100, NODE), (10, 60, OWN), (20, 50, NO), (55, 58, NO), *NEXT]) == [1, 2, 3, 5]


def test_operators_outside_of_nodes_are_in_none():
    assert found([(0, 100, NODE), (10, 30, NO), (150, 160, OWN), *NEXT]) == []
    recorded = [(200, 300, NODE), (210, 220, OWN)]
    assert found([(0, 100, NODE), (150, 160, OWN), *recorded, *NEXT]) == [3, 5]

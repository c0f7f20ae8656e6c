"""Operators of an iteration: which of them launched what the GPU does."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.report_factory import PARTITIONS, make_rank
from traceprobe.records.packed import Table
from traceprobe.records.picture import HOST, OPS, PARTS, Picture, Thread, Window
from traceprobe.render.pages.report_operators import innermost, operators, operators_table


def table(names, rows):
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return Table.of({n: np.array(c, dtype=np.int64) for n, c in zip(names, columns, strict=True)})


def deltas(rows):
    """Rows with absolute starts as a picture packs them."""
    before = 0
    for start, *rest in rows:
        yield (start - before, *rest)
        before = start


def picture(host, ops):
    """`host`: (start, duration, thread, kind, name); `ops`: (start, duration, launched, thread)."""
    packed = [
        (start, length, 0, 0, 0, 0 if launched is None else start - launched + 1, thread, 0, 0)
        for start, length, launched, thread in ops
    ]
    window = Window(
        why="typical",
        iteration=3,
        start_ns=0,
        duration_ns=1000,
        ops=table(OPS, [*deltas(packed)]),
        parts=table(PARTS, [(1000, 0)]),
        host=table(HOST, [*deltas(host)]),
    )
    return Picture(
        classes=["forward"],
        streams=[7],
        threads=[Thread(role="step", name="main"), Thread(role="autograd", name="autograd")],
        names=["aten::linear", "aten::addmm", "step", "aten::sum"],
        kinds=["range", "operator"],
        windows=[window],
    )


LINEAR, ADDMM, STEP, SUM = range(4)
MADE = picture(
    host=[
        (0, 900, 0, 0, STEP),
        (10, 100, 0, 1, LINEAR),
        (20, 40, 0, 1, ADDMM),
        (50, 60, 1, 1, SUM),
        (200, 50, 0, 1, LINEAR),
    ],
    ops=[
        (100, 300, 30, 1),  # in addmm, which linear calls
        (400, 50, 70, 1),  # in linear, after addmm
        (500, 20, 70, 2),  # at the same time on the other thread: in sum
        (600, 5, 150, 1),  # in no operator
        (700, 5, None, 0),  # launched by what is unknown
    ],
)


def test_work_belongs_to_the_innermost_operator_that_launched_it():
    found = {
        o.name: (o.calls, o.gpu_ops, o.gpu_ns, o.host_ns) for o in operators(MADE, MADE.windows[0])
    }
    assert list(found) == ["aten::addmm", "aten::linear", "aten::sum"]
    assert found == {
        "aten::addmm": (1, 1, 300, 40),
        "aten::linear": (2, 1, 50, 150),
        "aten::sum": (1, 1, 20, 60),
    }


def test_the_table_says_which_iteration_it_is_of():
    rank = msgspec.structs.replace(make_rank(PARTITIONS["io"]), picture=MADE)
    made = operators_table(rank)
    assert made.caption == "Operators of iteration 3, 1.00 µs, by the GPU work they launch"
    assert [row[0] for row in made.rows] == ["aten::addmm", "aten::linear", "aten::sum"]
    assert made.rows[0][2] == "81.1 %"


@pytest.mark.parametrize("changed", [{"kinds": ["range", "call"]}, {"windows": []}])
def test_without_operators_there_is_no_table(changed):
    rank = make_rank(PARTITIONS["io"])
    old = msgspec.structs.replace(rank, picture=msgspec.UNSET)
    assert operators_table(old) is None
    made = msgspec.structs.replace(MADE, **changed)
    assert operators_table(msgspec.structs.replace(rank, picture=made)) is None


def test_innermost_is_the_shortest_around_a_time():
    random = np.random.default_rng(7)
    intervals = [(0, 100)]
    for _ in range(60):  # each inside of another, or beside its neighbours
        low, high = intervals[random.integers(len(intervals))]
        a, b = sorted(random.integers(low, high + 1, 2).tolist())
        if all(
            b <= x or y <= a or (x <= a and b <= y) or (a <= x and y <= b) for x, y in intervals
        ):
            intervals.append((a, b))
    intervals.sort(key=lambda i: (i[0], -i[1]))
    begin, end = np.array(intervals).T
    times = np.arange(-1, 102)
    for time, found in zip(times, innermost(begin, end, times), strict=True):
        around = [y - x for x, y in intervals if x <= time < y]
        assert (end[found] - begin[found] if found >= 0 else None) == min(around, default=None)

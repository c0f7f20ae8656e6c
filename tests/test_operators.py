"""Operators: which one encloses which, and which launched a kernel."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import traceprobe
from tests.analyses import report_of
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.conftest import ROOT
from traceprobe.model.codes import UNKNOWN
from traceprobe.render.pages.report_operators import OUTSIDE, operators_table
from traceprobe.timeline.operators import innermost_rows, parents


@st.composite
def nested(draw):
    """Intervals that nest, sorted by start, of equal ones the longer first."""
    found = []

    def fill(low, high, depth):
        at = low
        while at < high and len(found) < 40:
            start = draw(st.integers(at, high))
            end = draw(st.integers(start, high))
            if start == end:
                return
            found.append((start, end))
            if depth < 4:
                fill(start, end, depth + 1)
            at = end

    fill(0, 60, 0)
    order = sorted(range(len(found)), key=lambda n: (found[n][0], -found[n][1]))
    return np.array([found[n] for n in order], dtype=np.int64).reshape(-1, 2).T


@given(intervals=nested(), instants=st.lists(st.integers(-1, 61)))
def test_the_innermost_is_the_one_that_began_last(intervals, instants):
    t0, t1 = intervals
    at = np.array(instants, dtype=np.int64)
    found = innermost_rows(t0, t1, parents(t0, t1), at)
    for instant, row in zip(instants, found.tolist(), strict=True):
        holding = [n for n in range(len(t0)) if t0[n] <= instant <= t1[n]]
        assert (row == UNKNOWN) == (not holding)
        if holding:
            assert t0[row] == max(t0[n] for n in holding)
            assert t0[row] <= instant <= t1[row]


@given(intervals=nested())
def test_a_parent_encloses_and_nothing_lies_between(intervals):
    t0, t1 = intervals
    for row, parent in enumerate(parents(t0, t1).tolist()):
        around = [n for n in range(row) if t0[n] <= t0[row] and t1[row] <= t1[n]]
        assert (parent == UNKNOWN) == (not around)
        if around:
            assert parent in around
            assert t1[parent] - t0[parent] == min(t1[n] - t0[n] for n in around)


def table_of(report):
    """Operator, class, operations and ms of the page's table."""
    table = operators_table(report.ranks[0])
    return [tuple(row[:4]) for row in table.rows]


def test_a_kernel_belongs_to_the_operator_that_launched_it(tmp_path):
    script = Script()
    script.operator("aten::linear", 100, 900)
    script.operator("aten::addmm", 200, 800)
    script.op("kernel", 1_000, 2_000, (300, 400), name="gemm")
    script.op("kernel", 2_000, 2_500, (820, 840), name="add")
    script.op("kernel", 3_000, 3_100, (950, 960), name="fill")
    report = traceprobe.analyze(traceprobe.load(kineto.write(script.build(), tmp_path / "t.json")))
    assert table_of(report) == [
        ("aten::addmm", "unattributed kernels", "1.00", "0.0010"),
        ("aten::linear", "unattributed kernels", "1.00", "0.0005"),
        (OUTSIDE, "unattributed kernels", "1.00", "0.0001"),
    ]


def test_operators_of_a_convnet_account_for_all_of_its_time():
    """At most 25 are listed, and this run has fewer of any weight."""
    rank = report_of(ROOT / "sample_traces" / "h200_unet_w1.json.gz").ranks[0]
    rows = operators_table(rank).rows
    assert [row[0] for row in rows[:2]] == ["aten::convolution_backward", "aten::cudnn_convolution"]
    assert 95 < sum(float(row[4].removesuffix(" %")) for row in rows) <= 100.5


def test_without_operators_nothing_is_said_of_them():
    report = report_of(ROOT / "sample_traces" / "h200_unet_w1.sqlite.gz")
    assert operators_table(report.ranks[0]) is None
    bare = msgspec.structs.replace(report.ranks[0], tree=msgspec.UNSET)
    assert operators_table(bare) is None

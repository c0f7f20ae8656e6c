"""Operators beside the roofline: which kernels belong to a call, and how far it is from peak."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import AUTOGRAD, Script
from traceprobe.records.operator_work import MOST_ROWS, Operators, OperatorWork
from traceprobe.records.roofline import Peaks
from traceprobe.render import document_of
from traceprobe.render.pages.roofline_operators import operator_lines
from traceprobe.verdict.operator_roofline import beside_roofline

PEAKS = Peaks(
    source="here", tflops={"bf16": 100.0, "fp32": 10.0, "tf32": 50.0}, bandwidth_gbps=1000
)


def noted(*sizes, kind="c10::BFloat16"):
    return {"Input Dims": list(map(list, sizes)), "Input type": [kind] * len(sizes)}


MM = noted((64, 32), (32, 16))


def analysed(script, folder):
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path))


def loop(steps=4):
    """Steps of 1 ms: two kernels of one product, one of a copy, one that nobody knows."""
    script = Script()
    for step in range(steps):
        t = 1_000_000 * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 999_000)
        script.operator("aten::linear", t + 5_000, t + 60_000)
        script.operator("aten::mm", t + 10_000, t + 50_000, operands=MM)
        script.op("kernel", t + 100_000, t + 130_000, (t + 11_000, t + 12_000), name="gemm_bf16")
        script.op("kernel", t + 130_000, t + 140_000, (t + 13_000, t + 14_000), name="splitKreduce")
        backward = {"thread": AUTOGRAD, "operands": noted((8, 8), (8, 8))}
        script.operator("aten::mul", t + 200_000, t + 210_000, **backward)
        launch = (t + 201_000, t + 202_000)
        script.op("kernel", t + 300_000, t + 305_000, launch, name="mul", thread=AUTOGRAD)
        script.operator("custom::op", t + 400_000, t + 410_000, operands=MM)
        script.op("kernel", t + 500_000, t + 555_000, (t + 401_000, t + 402_000), name="secret")
    return script


def test_a_call_has_the_time_of_all_its_kernels(tmp_path):
    found = analysed(loop(), tmp_path).roofline.operators
    product, element_wise = sorted(found.rows, key=lambda row: -row.ms)
    assert (product.operator, product.sizes) == ("aten::mm", [[64, 32], [32, 16]])
    assert (product.calls, product.ms) == (1, 0.04)
    assert (product.flops, product.bytes) == (2 * 64 * 32 * 16, 2 * (2048 + 512 + 1024))
    assert (element_wise.operator, element_wise.calls, element_wise.ms) == ("aten::mul", 1, 0.005)
    assert (found.kernel_ms, found.known_ms) == (0.1, 0.045)
    assert (
        "55.0 % of the kernels' time is in operators whose work is not known"
        in (operator_lines(found)[-1])
    )


def test_without_sizes_there_is_nothing(tmp_path):
    script = Script()
    for step in range(4):
        t = 1_000_000 * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 999_000)
        script.operator("aten::mm", t + 10_000, t + 50_000)
        script.op("kernel", t + 100_000, t + 130_000, (t + 11_000, t + 12_000))
    assert analysed(script, tmp_path).roofline.operators is UNSET


def row(ms, flops=0, moved=1, precision="bf16", calls=1.0, operator="aten::mm"):
    return OperatorWork(
        operator=operator,
        sizes=[[4, 4]],
        precision=precision,
        calls=calls,
        ms=ms,
        flops=flops,
        bytes=moved,
    )


def of(*rows, measured=None, published=PEAKS):
    total = sum(each.ms for each in rows)
    found = Operators(kernel_ms=total, known_ms=total, excess_ms=None, rows=list(rows), notes=[])
    return beside_roofline(found, measured, published)


def test_the_least_time_is_the_longer_of_math_and_traffic():
    found = of(row(10.0, flops=10**11, calls=2.0), row(3.0, moved=10**9, operator="aten::add"))
    product, copied = found.rows
    assert (product.bound, product.least_ms, product.attained, product.excess_ms) == (
        *("math", 2.0, 0.2, 8.0),
    )
    assert (copied.bound, copied.least_ms, copied.excess_ms) == ("memory", 1.0, 2.0)
    assert copied.attained == pytest.approx(1 / 3, abs=1e-6)
    assert found.excess_ms == 10.0
    assert operator_lines(found) == [
        "two operators run at 23.1 % of what the device could: 10.0 ms of a step are above the "
        "roofline"
    ]


def test_measured_peaks_come_before_published_ones():
    slower = Peaks(source="measured", tflops={"bf16": 50.0}, bandwidth_gbps=500.0)
    found = of(row(10.0, flops=10**11), row(9.0, moved=10**9), measured=slower)
    assert [each.least_ms for each in found.rows] == [2.0, 2.0]


def test_what_may_have_run_as_tf32_has_the_least_time_of_that():
    rows = [row(10.0, flops=10**11, precision=name) for name in ("fp32 or tf32", "fp32", "tf32")]
    found = {each.precision: each.least_ms for each in of(*rows).rows}
    assert found == {"fp32 or tf32": 2.0, "fp32": 10.0, "tf32": 2.0}


def test_an_unknown_peak_leaves_the_rest_open():
    found = of(row(5.0, flops=10**11, precision="fp8"), row(1.0, moved=10**8))
    assert [each.attained for each in found.rows] == [0.1, None]
    alone = of(row(5.0, flops=10**11), published=None)
    assert (alone.excess_ms, alone.rows[0].bound) == (None, None)
    assert operator_lines(alone) == []


def test_what_is_faster_than_the_roofline_is_shown_as_it_is():
    found = of(row(0.5, flops=10**11), row(0.5, moved=10**9))
    assert {(each.attained, each.excess_ms) for each in found.rows} == {(2.0, -0.5)}
    assert found.excess_ms == 0
    assert found.notes == [
        "an operator is faster than the roofline allows by math: the peak or the formula of their "
        "operations is off",
        "an operator is faster than the roofline allows by memory: their operands were in a cache, "
        "or the bandwidth or their bytes are off",
    ]


@given(
    st.lists(
        st.builds(
            row,
            ms=st.floats(1e-6, 1e3).map(lambda ms: round(ms, 6)),
            flops=st.integers(0, 1 << 60),
            moved=st.integers(0, 1 << 60),
            precision=st.sampled_from(["bf16", "fp32 or tf32", "fp64", ""]),
            calls=st.floats(0.01, 1e6),
        ),
        max_size=40,
    )
)
def test_time_is_the_least_time_and_the_excess(rows):
    found = of(*rows)
    assert not list(found.problems())
    assert len(found.rows) == min(len(rows), MOST_ROWS)
    losses = [each.excess_ms or 0.0 for each in found.rows]
    assert losses == sorted(losses, reverse=True)


def test_the_page_has_a_row_for_each(tmp_path):
    report = analysed(loop(), tmp_path)
    assert "custom::op" not in msgspec.json.encode(report.roofline).decode()
    section = next(each for each in document_of(report).sections if each.id == "roofline-operators")
    (table,) = section.blocks
    assert {cells[0] for cells in table.rows} == {"aten::mm", "aten::mul"}
    assert {cells[1] for cells in table.rows} == {"[64, 32] [32, 16]", "[8, 8] [8, 8]"}


def test_redacted_reports_keep_sizes_without_names(tmp_path):
    from traceprobe.anonymise.redact import redact

    found = redact(analysed(loop(), tmp_path)).roofline.operators
    assert {str(each.sizes) for each in found.rows} == {"[[64, 32], [32, 16]]", "[[8, 8], [8, 8]]"}
    assert not any("aten" in each.operator for each in found.rows)

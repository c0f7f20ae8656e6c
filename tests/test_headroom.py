"""The bounds of the shortest step: by hand, between each other, and on recordings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tests.analyses import report_of
from tests.conftest import ROOT
from tests.memory_records import make_step
from tests.operands import half, operands, single
from tests.rendering import html_of, markdown_of, terminal_of
from tests.report_factory import make_report
from tests.roofline_runs import TFLOP, counted_phase, counted_workload, run_on_h200
from traceprobe.records.headroom import Floor, Headroom
from traceprobe.records.memory import read
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.render.pages import report_headroom
from traceprobe.timeline.operator_work import work_of
from traceprobe.verdict.headroom import floors_of, headroom
from traceprobe.verdict.roofline import roofline
from traceprobe.verdict.thresholds import FIXED

BF16, TF32, FP32, BANDWIDTH, L2 = 989.5, 494.7, 67.0, 4800.0, 60 * 2**20
"""Published of an H200: TFLOP/s, GB/s, bytes."""


def math_floor(flops=None, *, work=None, report=None, measured=None):
    """The floor of math, and nothing else: ms."""
    report = report or run_on_h200()
    told = roofline(report.ranks, report.quality, work, None, None, measured)
    found = {f.name: f for f in floors_of(report.ranks, told, work, flops, None)}
    return found["math"].ms if "math" in found else None


def with_least(least, **tables):
    """A counted step with the operations that nobody leaves out."""
    work = counted_workload(**tables)
    for name in ("forward", "backward", "recompute"):
        work["work"][name]["least_flops"] = least.get(name, {})
    return work


def test_operations_take_their_time_at_the_published_peak():
    assert math_floor({"bf16": 12 * TFLOP}) == pytest.approx(12e3 / BF16, rel=1e-3)


def test_matrix_units_do_one_precision_after_the_other_and_other_units_run_beside():
    both = math_floor({"bf16": 12 * TFLOP, "tf32": 3 * TFLOP})
    assert both == pytest.approx(12e3 / BF16 + 3e3 / TF32, rel=1e-3)
    assert math_floor({"bf16": 12 * TFLOP, "fp64": TFLOP // 10}) == pytest.approx(
        12e3 / BF16, rel=1e-3
    )


def test_three_products_in_tf32_are_one_in_fp32():
    assert math_floor({"fp32": 3 * TFLOP}) == pytest.approx(3 * 3e3 / TF32, rel=1e-3)
    assert TF32 / FIXED.tf32_products > FP32


def test_a_measured_peak_counts_with_a_margin_and_never_above_the_published_one():
    def measured(tflops):
        return MeasuredPeaks(
            schema_version="1.0",
            traceprobe_version="0.1.0",
            device="NVIDIA H200",
            device_kind="gpu",
            torch="2.11.0",
            matrix_side=8192,
            repetitions=20,
            tflops={"bf16": tflops},
            copy_gbps=4200.0,
            h2d_gbps=55.0,
        )

    slow, fast = (
        math_floor({"bf16": 12 * TFLOP}, measured=measured(rate)) for rate in (700.0, 950.0)
    )
    assert slow == pytest.approx(12e3 / (700 * FIXED.headroom_peak), rel=1e-6)
    assert fast == pytest.approx(12e3 / BF16, rel=1e-3)


def test_what_was_counted_before_training_counts_without_what_masks_hide():
    least = {"forward": {"bf16": 3 * TFLOP}, "backward": {"bf16": 6 * TFLOP}}
    assert math_floor(work=with_least(least)) == pytest.approx(9e3 / BF16, rel=1e-3)


def test_a_sum_alone_counts_by_half_and_what_is_computed_again_not_at_all():
    again = counted_phase(4 * TFLOP, model=0)
    assert math_floor(work=counted_workload()) == pytest.approx(6e3 / BF16, rel=1e-3)
    assert math_floor(work=counted_workload(recompute=again)) == math_floor(work=counted_workload())


def test_without_peaks_or_work_there_is_no_floor():
    unknown = run_on_h200(name="Some GPU of tomorrow")
    assert math_floor({"bf16": 12 * TFLOP}, report=unknown) is None
    assert math_floor({"int8": 12 * TFLOP}) is None
    assert math_floor() is None
    report = make_report("compute")
    assert floors_of(report.ranks, None, counted_workload(), {"bf16": TFLOP}, None) == []


@pytest.mark.parametrize("count", [10**400, -1, 1.5, "many", None])
def test_a_count_that_nobody_made_is_none(count):
    counted_so = with_least({"forward": {"bf16": count}})
    assert math_floor(work=counted_so) == math_floor(work=counted_workload())  # half of the sum


def test_a_precision_that_no_device_has_is_no_floor_and_no_word_of_the_report():
    assert math_floor(work=with_least({"forward": {"my secret": 4 * TFLOP}})) is None


GB = 10**9


def held(optimizer="AdamW", *, weights=2 * GB, state=4 * GB, gradients=2 * GB):
    """Memory of a step, as a recording has it."""
    step = make_step()
    step["most"] |= {"weights": weights, "optimizer_state": state, "gradients": gradients}
    memory = read({"optimizer": optimizer, "measured": step})
    assert memory is not None
    return memory


def memory_floor(memory, work=None):
    report = run_on_h200()
    told = roofline(report.ranks, report.quality, {"flops_per_step": 1.0}, None, None, None)
    found = {f.name: f for f in floors_of(report.ranks, told, work, None, memory)}
    return found["memory"].ms if "memory" in found else None


def test_weights_and_state_go_to_the_memory_and_back_but_for_what_the_cache_keeps():
    assert memory_floor(held()) == pytest.approx((2 * 6 * GB - 2 * L2) / BANDWIDTH / 1e6, rel=1e-3)
    assert memory_floor(held(weights=10**6, state=10**6, gradients=10**6)) is None


def test_frozen_weights_and_sparse_gradients_are_not_written():
    frozen = memory_floor(held(gradients=GB, state=2 * GB))
    assert frozen == pytest.approx((2 * 3 * GB - 2 * L2) / BANDWIDTH / 1e6, rel=1e-3)
    assert memory_floor(held(gradients=GB)) == frozen  # no more state than two moments
    assert memory_floor(held("SparseAdam")) is None


def test_an_update_that_was_counted_counts_without_its_gradients():
    work = counted_workload(optimizer={"bytes": 42 * GB})
    assert memory_floor(None, work) == pytest.approx((28 * GB - 2 * L2) / BANDWIDTH / 1e6, rel=1e-3)


CALLS = {
    "a product": ("aten::mm", [half(16, 32), half(32, 8)], 1.0),
    "a batch, which may be scores": ("aten::bmm", [half(3, 4, 5), half(3, 5, 6)], 0.5),
    "a convolution at stride 1": (
        "aten::cudnn_convolution",
        [single(2, 3, 9, 9), single(4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1, False, False, True],
        0.25,
    ),
    "one in a single dimension": (
        "aten::cudnn_convolution",
        [single(2, 3, 9), single(4, 3, 3), [1], [1], [1], 1, False, False, True],
        0.5,
    ),
    "one with a stride": (
        "aten::cudnn_convolution",
        [single(2, 3, 9, 9), single(4, 3, 3, 3), [1, 1], [2, 2], [1, 1], 1, False, False, True],
        1.0,
    ),
    "one of points": (
        "aten::cudnn_convolution",
        [single(2, 3, 9, 9), single(4, 3, 1, 1), [0, 0], [1, 1], [1, 1], 1, False, False, True],
        1.0,
    ),
    "one with a large kernel": (
        "aten::cudnn_convolution",
        [single(2, 3, 9, 9), single(4, 3, 7, 7), [3, 3], [1, 1], [1, 1], 1, False, False, True],
        0.0,
    ),
    "attention": (
        "aten::_scaled_dot_product_flash_attention",
        [half(2, 8, 64, 32), half(2, 8, 64, 32), half(2, 8, 64, 32), 0.0, False, False],
        1.0,
    ),
    "attention with a mask of numbers": (
        "aten::_scaled_dot_product_efficient_attention",
        [*[half(2, 8, 64, 32)] * 3, half(2, 1, 64, 64), False, 0.0, False],
        0.5,
    ),
}


@pytest.mark.parametrize(("name", "given", "share"), CALLS.values(), ids=list(CALLS))
def test_only_operations_that_no_way_to_compute_the_same_leaves_out_count(name, given, share):
    work = work_of(name, operands(*given))
    assert work is not None
    assert work.least == int(share * work.flops)


positive = st.floats(1e-3, 1e4)


@given(positive, st.floats(0, 2e4), st.lists(positive, max_size=3))
def test_floor_reachable_and_now_are_in_order(now, reachable, floors):
    found = headroom(now, reachable, [Floor(name="math", ms=ms, why="") for ms in floors])
    if found is None:  # nothing known, next to nothing, or more than the step
        assert not floors or not FIXED.headroom_least * now * 1.001 < max(floors) < now * 0.999
        return
    assert not list(found.problems())
    assert found.floor_ms == pytest.approx(max(floors), abs=1e-6)
    assert found.floor_ms <= found.reachable_ms <= found.now_ms


def bounded(floor, reachable, now):
    floors = [Floor(name="math", ms=floor, why="it computes as much")]
    found = Headroom(now_ms=now, floor_ms=floor, reachable_ms=reachable, floors=floors)
    return replace(make_report("compute"), headroom=found)


def test_a_reader_is_told_how_much_can_go():
    assert report_headroom.amount(bounded(42.0, 59.0, 73.0)) == "14.0 to 31.0 of 73.0 ms"
    assert report_headroom.amount(bounded(42.0, 73.0, 73.0)) == "at most 31.0 of 73.0 ms"
    assert report_headroom.amount(bounded(42.0, 42.0, 73.0)) == "31.0 of 73.0 ms"
    assert report_headroom.amount(bounded(73.0, 73.0, 73.0)) == "nothing of 73.0 ms"
    assert report_headroom.sentences(replace(make_report("compute"), headroom=UNSET)) == []
    (said,) = report_headroom.sentences(bounded(42.0, 59.0, 73.0))
    assert said == "Between 14.0 and 31.0 of 73.0 ms a step can be saved."


@pytest.mark.parametrize(("status", "said"), [("warn", "At this precision at"), ("pass", "At")])
def test_a_bound_that_leaves_out_what_a_finding_asks_for_says_so(status, said):
    report = bounded(42.0, 73.0, 73.0)
    other = replace(report.findings[0], id="lower-precision", status=status)
    report = replace(report, findings=[other])
    (sentence,) = report_headroom.sentences(report)
    assert sentence == f"{said} most 31.0 of 73.0 ms a step can be saved."


def test_every_output_says_it_and_why():
    report = bounded(42.0, 59.0, 73.0)
    said = "Between 14.0 and 31.0 of 73.0 ms a step can be saved"
    assert said in markdown_of(report)
    assert said in terminal_of(report, 80, False)
    page = html_of(report)
    assert said in page
    assert "it computes as much" in page
    assert "it computes as much" in terminal_of(report, 80, False, verbose=True)


def test_no_sample_contradicts_itself():
    for path in sorted((ROOT / "sample_traces").glob("*.gz")):
        found = report_of(path).headroom
        assert found is UNSET or not list(found.problems())


def test_gpt2_on_an_h200(corpus):
    """Batch 16, 1024 tokens, 12 layers of 768, 50304 words: operations by hand."""
    found = report_of(corpus / "kineto" / "h200_gpt2_bf16.json.gz").headroom
    tokens, width, layers, words = 16 * 1024, 768, 12, 50304
    products = 6 * tokens * (12 * layers * width**2 + width * words)
    attention = 6 * 2 * layers * tokens * 1025 / 2 * width
    least = (products + attention) / BF16 / 1e9
    assert found is not UNSET
    assert found.floor_ms == pytest.approx(least, rel=2e-3)
    assert found.floor_ms < 42.4 * 50.8 / 72.0  # what compiling made of such a step

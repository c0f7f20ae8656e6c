"""What output layer and loss over many classes take: which kernels, and what is said of it."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.evidence import finding_of
from tests.report_factory import MS
from traceprobe.records.logits import Logits

WORDS, POSITIONS, WIDTH, US = 32_000, 512, 768, 1_000
SCORES, HIDDEN, WEIGHTS = [POSITIONS, WORDS], [POSITIONS, WIDTH], [WIDTH, WORDS]
PRODUCT = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, Copy>(int)"
HEAD = [
    ("aten::mm", [HIDDEN, WEIGHTS], PRODUCT),
    ("aten::copy_", [SCORES, SCORES], ELEMENTWISE),
    ("aten::_log_softmax", [SCORES], ELEMENTWISE),
    ("aten::mm", [[WORDS, POSITIONS], HIDDEN], PRODUCT),
]
OTHERS = [
    ("aten::embedding", [[WORDS, WIDTH], [POSITIONS]], ELEMENTWISE),
    ("aten::mm", [HIDDEN, [WIDTH, WIDTH]], PRODUCT),
    ("aten::_log_softmax", [[64, 10]], ELEMENTWISE),
]


def summary_of(folder, *calls):
    """Of steps of 1 ms in which operators launch a kernel of 10 µs each."""
    script = Script()
    for step in range(4):
        t = MS * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 999 * US)
        for number, (name, shapes, kernel) in enumerate(calls):
            at = t + 50 * US * (number + 1)
            noted = {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
            script.operator(name, at, at + 9 * US, operands=noted)
            script.op("kernel", at + 10 * US, at + 20 * US, (at + US, at + 2 * US), name=kernel)
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path)).ranks[0].summary


def test_output_layer_and_loss_are_known_by_the_classes(tmp_path):
    summary = summary_of(tmp_path, *HEAD, *OTHERS)
    steps = summary.iterations_used
    assert summary.logits == Logits(
        classes=WORDS,
        positions=POSITIONS * steps,
        total_ns=40 * US * steps,
        products_ns=20 * US * steps,
    )


@pytest.mark.parametrize(
    "calls",
    [
        OTHERS,
        HEAD[:2],
        [("aten::_log_softmax", [[512, 9_999]], ELEMENTWISE)],
        [("aten::_log_softmax", [], ELEMENTWISE)],
        [("aten::_log_softmax", [[]], ELEMENTWISE)],
        [("aten::_log_softmax", [[0, WORDS]], ELEMENTWISE)],
    ],
    ids=["no such loss", "no loss", "few classes", "no operand", "no shape", "no position"],
)
def test_without_a_loss_over_many_classes_there_are_none(tmp_path, calls):
    assert summary_of(tmp_path, *calls).logits is UNSET


def rank(ms, number=0):
    """One whose logits take so long of steps of 100 ms."""
    made = records.rank({"forward": 50, "backward": 50}, number)
    total = ms * MS * records.STEPS
    found = Logits(classes=WORDS, positions=POSITIONS, total_ns=total, products_ns=total // 4)
    return replace(made, summary=replace(made.summary, logits=found))


@pytest.mark.parametrize(("ms", "status"), [(25, "warn"), (24, "pass")])
def test_they_matter_from_a_quarter_of_the_step_on(ms, status):
    finding = finding_of("large-logits", rank(ms))
    assert (finding.status, finding.saving_ms_per_step) == (status, ms)
    assert f"{ms}.0 ms per step" in finding.evidence[0]
    assert "(25 %) is products" in finding.evidence[1]


def test_the_rank_with_most_of_it_counts():
    """As the last stage of a pipeline has the output layer alone."""
    ranks = [rank(1, 0), rank(40, 1)]
    assert finding_of("large-logits", *ranks).status == "warn"


def test_without_shapes_it_does_not_apply():
    assert finding_of("large-logits", records.rank({"forward": 100})).status == "not-applicable"

"""Forward work that no backward pass goes through: by numbers of autograd, and the finding."""

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
from traceprobe.records.forward_only import ForwardOnly

STEPS = 5
AUTOGRAD = 77
"""Thread of the backward pass."""


def run(folder, *, numbered=True, backward=STEPS, twice=False):
    """Steps with a pass that is learned from, and one of 200 µs that is not.

    Args:
        numbered: whether gradients are recorded in that one.
        backward: steps that have a backward pass in the capture.
        twice: whether a backward pass goes through both.
    """
    script = Script()
    for step in range(STEPS):
        t, number = MS * (step + 1), 10 * step
        script.range(f"ProfilerStep#{step}", t, t + 999_000)
        used = {"sequence": number}
        other = {"sequence": number + 1} if numbered else {}
        for at, numbers, name in ((t, used, "aten::mm"), (t + 30_000, other, "aten::conv2d")):
            script.operator(name, at + 1_000, at + 20_000, **numbers)
        script.op("kernel", t + 10_000, t + 110_000, (t + 2_000, t + 3_000), name="gemm")
        script.op("kernel", t + 120_000, t + 320_000, (t + 32_000, t + 33_000), name="conv")
        if step >= backward:
            continue
        for n in range(2 if twice else 1):
            at = t + 60_000 + 30_000 * n
            script.operator(
                "MmBackward0",
                at,
                at + 20_000,
                thread=AUTOGRAD,
                sequence=number + n,
                forward_thread=1,
            )
        script.op(
            "kernel",
            t + 400_000,
            t + 500_000,
            (t + 62_000, t + 63_000),
            thread=AUTOGRAD,
            name="gemm_back",
        )
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path))


def test_work_whose_number_no_backward_operator_has_is_found(tmp_path):
    report = run(tmp_path)
    (rank,) = report.ranks
    found = rank.summary.forward_only
    assert found.iterations == STEPS - 1
    assert found.operators == {"aten::conv2d": found.iterations * 200_000}
    found = next(f for f in report.findings if f.id == "forward-only")
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(0.2)
    assert found.evidence[0].startswith("0.200 ms per step")
    assert "most of it in `aten::conv2d`" in found.evidence


@pytest.mark.parametrize("changes", [{"numbered": False}, {"twice": True}, {"backward": 0}])
def test_work_without_a_number_and_work_that_is_learned_from_is_not(tmp_path, changes):
    """Nor is any told where no backward pass is in the capture."""
    assert run(tmp_path, **changes).ranks[0].summary.forward_only is UNSET


def test_a_backward_pass_that_may_still_be_due_is_not_missed(tmp_path):
    """As of a pipeline, whose micro-batches are on their way when the capture ends."""
    report = run(tmp_path, backward=STEPS - 3)
    found = report.ranks[0].summary.forward_only
    assert found.kernels == STEPS - 3 - 1
    assert found.total_ns == found.kernels * 200_000


def test_the_rank_that_has_it_alone_is_named():
    ranks = [records.rank({"forward": 500, "backward": 500}, n) for n in range(2)]
    work = ForwardOnly(
        total_ns=200 * MS * records.STEPS,
        kernels=4 * records.STEPS,
        iterations=records.STEPS,
        operators={"aten::mm": 1},
        lines={"train.py(4): f": 1},
    )
    late = replace(ranks[1], summary=replace(ranks[1].summary, forward_only=work))
    found = finding_of("forward-only", ranks[0], late)
    assert found.evidence[1] == "on rank 1 alone"
    assert found.saving_ms_per_step == pytest.approx(200)
    assert finding_of("forward-only", late).sites[0].line == "train.py(4): f"

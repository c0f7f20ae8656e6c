"""Backward passes that go through the same graph again: by autograd's numbers, and the finding."""

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
from traceprobe.records.repeated_backward import RepeatedBackward
from traceprobe.timeline.backward_passes import NODE

STEPS = 4
AUTOGRAD = 77
"""Thread of the backward pass."""
KERNEL_US = 50


def run(folder, passes, *, recorded=False):
    """Steps of a forward pass of three operators, and backward passes through some of them.

    Args:
        passes: numbers of the operators that each backward pass goes through, in its order.
        recorded: whether backward passes are recorded themselves, with numbers of their own.
    """
    script = Script()
    for step in range(STEPS):
        t, number = 2 * MS * (step + 1), 100 * step
        script.range(f"ProfilerStep#{step}", t, t + 2 * MS - 1_000)
        free = t + 20_000
        for n in range(3):
            at = t + 10_000 * n
            script.operator("aten::mm", at + 1_000, at + 8_000, sequence=number + n)
            script.op("kernel", free, free + 40_000, (at + 2_000, at + 3_000), name="gemm")
            free += 40_000
        at = t + 100_000
        for taken in passes:
            # A loss of its own begins each pass.
            script.operator("aten::ones_like", at, at + 2_000)
            at += 3_000
            for n in taken:
                noted = {"sequence": number + n, "forward_thread": 1, "thread": AUTOGRAD}
                script.operator(f"{NODE}MmBackward0", at, at + 9_000, **noted)
                script.operator("MmBackward0", at + 500, at + 8_500, **noted)
                if recorded:
                    own = {"sequence": number + 50 + n, "thread": AUTOGRAD}
                    script.operator("aten::mm", at + 1_000, at + 8_000, **own)
                start, call = max(free, at + 4_000), (at + 2_000, at + 3_000)
                free = start + KERNEL_US * 1_000
                script.op("kernel", start, free, call, thread=AUTOGRAD, name="gemm_back")
                at += 10_000
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path)).ranks[0].summary.repeated_backward


def test_what_a_second_loss_goes_through_again_is_counted(tmp_path):
    found = run(tmp_path, [(2, 1, 0), (1, 0), (0,)])
    assert found.kernels == 3 * found.iterations
    assert found.total_ns == found.kernels * KERNEL_US * 1_000
    assert found.iterations >= STEPS - 1


@pytest.mark.parametrize(
    ("passes", "recorded"),
    [([(2, 1, 0)], False), ([(2,), (1, 0)], False), ([(2, 1, 0), (2, 1, 0)], True)],
    ids=["one pass", "passes through other layers", "gradients of gradients"],
)
def test_what_has_to_be_gone_through_is_not(tmp_path, passes, recorded):
    assert run(tmp_path, passes, recorded=recorded) is UNSET


def test_the_finding_says_what_one_call_saves():
    rank = records.rank(
        {"forward": 300, "backward": 300, "idle_host": 400},
        host=records.host(
            phase_kernels={"backward": 200.0}, phase_launch_ns={"backward": 400 * MS}
        ),
    )
    work = RepeatedBackward(
        total_ns=200 * MS * records.STEPS, kernels=100 * records.STEPS, iterations=records.STEPS
    )
    found = finding_of(
        "retained-graph", replace(rank, summary=replace(rank.summary, repeated_backward=work))
    )
    assert found.status == "warn"
    assert found.evidence[0].startswith("200 ms per step (20.0 %) in 100 kernels per step")
    assert found.saving_ms_per_step > 200
    assert "retain_graph=True" in found.advice


def test_without_numbers_nothing_is_known():
    assert finding_of("retained-graph", records.rank({"backward": 500})).status == "not-applicable"

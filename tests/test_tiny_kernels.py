"""Kernels that do little more than start and end: what they take of the GPU, and the finding."""

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
from traceprobe.records.tiny_kernels import TinyKernels

STEPS, COUNT = 4, 50


def run(folder, *, length=2_000, gap=1_000, phase=None):
    """Steps of a kernel of 400 µs, and short ones after it that were all launched long before.

    Args:
        length, gap: of and after each of those, ns.
        phase: a range that they are launched in.
    """
    script = Script()
    for step in range(STEPS):
        t = MS * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 990_000)
        script.op("kernel", t + 10_000, t + 410_000, (t + 2_000, t + 3_000), name="gemm")
        if phase:
            script.range(phase, t + 3_500, t + 300_000)
        for n in range(COUNT):
            called, begun = t + 4_000 + 2_000 * n, t + 410_000 + n * (length + gap)
            script.op(
                "kernel", begun, begun + length, (called, called + 1_000), name=f"mul_{n % 2}"
            )
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path))


def test_they_are_counted_with_the_gaps_after_them(tmp_path):
    report = run(tmp_path)
    (rank,) = report.ranks
    found, steps = rank.summary.tiny_kernels, rank.summary.iterations_used
    assert found.count == COUNT * steps
    assert found.total_ns == COUNT * steps * 2_000
    # After the last one of a step the GPU idles for longer, of which 5 µs count at most.
    assert found.gap_ns == steps * ((COUNT - 1) * 1_000 + 5_000)
    assert found.names == {"mul_0": found.total_ns // 2, "mul_1": found.total_ns // 2}
    told = next(f for f in report.findings if f.id == "small-kernels")
    assert told.status == "warn"
    assert told.evidence[0].startswith("50 kernels of at most 5 µs take 0.154 ms per step")
    # They, the gaps after them, and what the host takes to launch them.
    assert told.saving_ms_per_step == pytest.approx(0.154 + COUNT * 0.002, rel=0.05)


def test_longer_kernels_and_those_of_the_optimizer_are_others(tmp_path):
    assert run(tmp_path, length=5_100, gap=100).ranks[0].summary.tiny_kernels is UNSET
    update = run(tmp_path, phase="Optimizer.step#SGD.step")
    assert update.ranks[0].summary.tiny_kernels is UNSET


def with_tiny(ns, kernel_ns=None, **parts):
    rank = records.rank({"forward": 100, **parts})
    tiny = TinyKernels(count=9, total_ns=ns * records.STEPS, gap_ns=0, names={"mul": 1}, lines={})
    kinds = rank.summary.kernel_ns if kernel_ns is None else kernel_ns
    return replace(rank, summary=replace(rank.summary, tiny_kernels=tiny, kernel_ns=kinds))


@pytest.mark.parametrize(("ms", "status"), [(4.9, "pass"), (5, "warn"), (60, "warn")])
def test_a_notable_part_of_the_step_is_asked_about(ms, status):
    found = finding_of("small-kernels", with_tiny(int(ms * MS)))
    assert (found.status, found.saving_ms_per_step) == (status, ms if status == "warn" else None)


def test_it_is_counted_once():
    fused = {"fused": 1, "other": 25 * MS * records.STEPS}
    both = with_tiny(20 * MS, fused)
    assert finding_of("unfused-kernels", both).status == "warn"
    assert finding_of("small-kernels", both).status == "pass"

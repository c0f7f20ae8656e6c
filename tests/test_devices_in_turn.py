"""The GPUs of one process that compute the parts of a model by turns wait for each other."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.scenario import Process, Script
from tests.evidence import finding_in

US, MS = 1_000, 1_000_000
STEPS = 8
PART = 5 * MS
"""Device 1 computes for so long, and device 0 before it for half of that, and after it."""
STEP = 2 * PART + MS


def model(*, reads=False, hands_over=True):
    """Steps in which device 0 computes, device 1 what it makes of that, and device 0 again.

    Args:
        reads: the host reads the loss before the backward pass, which it launches after that.
    """
    script = Script(Process(devices=("NVIDIA H200", "NVIDIA H200")))
    for k in range(STEPS):
        at = k * STEP
        script.range(f"ProfilerStep#{k}", at, at + STEP)
        first, second = at + 100 * US, at + 100 * US + PART // 2
        third = second + PART
        launches = [at + 50 * US + n * 10 * US for n in range(5)]
        calls = [(launch, launch + 5 * US) for launch in launches]
        script.op("kernel", first, second - 100 * US, calls[0])
        if hands_over:
            script.op("p2p", second - 100 * US, second, calls[1], bytes=1_000_000)
        script.op("kernel", second, third - 100 * US, calls[2], device=1)
        if reads:
            call = (launches[3], third - 60 * US)
            script.op("d2h", third - 80 * US, third - 70 * US, call, device=1, bytes=4)
            calls[4] = (third - 55 * US, third - 50 * US)
        script.op("kernel", third, third + PART // 2, calls[4])
    return script


@pytest.fixture(params=[kineto, nsight], ids=["kineto", "nsight"])
def analysed(request, tmp_path):
    name = {kineto: "trace.json", nsight: "trace.sqlite"}[request.param]

    def analyse(script):
        path = request.param.write(script.build(), tmp_path / name)
        return traceprobe.analyze(traceprobe.load(path))

    return analyse


def test_a_device_that_has_its_work_waits_for_the_other_one(analysed):
    report = analysed(model())
    assert report.verdict.bound == "communication"
    assert report.verdict.shares["overhead"] < 0.15
    assert "another one of the process computes what it waits for" in " ".join(
        report.verdict.reasons
    )
    first = report.ranks[0].summary
    waits = first.host.awaits_device_ns["idle_latency"] / first.steps
    assert waits == pytest.approx(PART, abs=0.2 * MS)
    texts = {gap.evidence for gap in report.ranks[0].gaps}
    assert "another GPU of the process computes what it waits for" in texts


def test_what_hands_nothing_over_is_not_waited_for(analysed):
    report = analysed(model(hands_over=False))
    assert report.verdict.shares["communication"] == 0
    assert not any(rank.summary.host.awaits_device_ns for rank in report.ranks)


def test_a_host_that_reads_the_loss_waits_for_the_device_that_computes(analysed):
    report = analysed(model(reads=True))
    assert report.verdict.bound == "communication"
    first = report.ranks[0].summary
    waits = first.host.awaits_device_ns
    assert sum(waits.values()) / first.steps == pytest.approx(PART, abs=0.2 * MS)
    found = finding_in(report, "pipeline-bubble")
    assert found.status == "fail"
    assert "micro-batches that follow each other" in found.advice
    assert found.saving_ms_per_step <= PART / MS + 0.2
    assert finding_in(report, "host-overhead").status != "fail"


def test_no_path_and_no_prediction_leaves_out_what_they_wait_for(analysed):
    report = analysed(model())
    assert not report.critical_path
    assert not any(finding.predicted for finding in report.findings)
    told = "is “idle: launch latency”: another GPU of the process computes what it waits for"
    assert told in report.to_html()

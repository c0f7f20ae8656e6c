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


def model(*, reads=False, copies=STEPS, parts=(PART, PART), devices=2):
    """Steps in which device 0 computes, device 1 what it makes of that, and device 0 again.

    The host waits for the end of each.

    Args:
        reads: the host reads the loss before the backward pass, which it launches after that.
        copies: in how many steps device 0 hands something over.
        parts: how long each device computes. devices: those from 2 on compute all the time.
    """
    script = Script(Process(devices=("NVIDIA H200",) * devices))
    for k in range(STEPS):
        at = k * STEP
        script.range(f"ProfilerStep#{k}", at, at + STEP)
        first, second = at + 100 * US, at + 100 * US + parts[0] // 2
        third = second + parts[1]
        end = third + parts[0] // 2
        calls = [(at + (50 + n * 10) * US, at + (55 + n * 10) * US) for n in range(5)]
        script.op("kernel", first, second - 100 * US, calls[0])
        if k < copies:
            script.op("p2p", second - 100 * US, second, calls[1], bytes=1_000_000)
        script.op("kernel", second, third - 100 * US, calls[2], device=1)
        if reads:
            call = (calls[3][0], third - 60 * US)
            script.op("d2h", third - 80 * US, third - 70 * US, call, device=1, bytes=4)
            calls[4] = (third - 55 * US, third - 50 * US)
        script.op("kernel", third, end, calls[4])
        for device in range(2, devices):
            call = (at + 20 * US, at + 25 * US)
            script.op("kernel", at + 30 * US, at + STEP - 30 * US, call, device=device)
        script.call("cudaDeviceSynchronize", calls[4][1] + 5 * US, end + 10 * US)
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


@pytest.mark.parametrize("copies", [0, 1])
def test_what_hands_nothing_over_is_not_waited_for(analysed, copies):
    report = analysed(model(copies=copies))
    assert report.verdict.shares["communication"] < 0.01
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


def test_what_one_waits_beyond_the_other_is_no_turn(analysed):
    """Of 8 and 2 ms one waits for 2, and the other for 8, of which 6 only a smaller part saves."""
    report = analysed(model(parts=(8 * MS, 2 * MS)))
    waits = [rank.summary.host.awaiting_device_ns() / rank.summary.steps for rank in report.ranks]
    assert waits == [pytest.approx(2 * MS, abs=0.2 * MS)] * 2
    assert report.verdict.shares["communication"] == pytest.approx(2 * MS / STEP, abs=0.02)
    assert finding_in(report, "communication-exposed").status == "pass"
    found = finding_in(report, "pipeline-bubble")
    assert found.saving_ms_per_step == pytest.approx(2.0, abs=0.2)


def test_beside_a_device_that_never_waits_there_are_no_turns(analysed):
    report = analysed(model(devices=3))
    assert report.verdict.shares["communication"] < 0.01
    assert not any(rank.summary.host.awaits_device_ns for rank in report.ranks)

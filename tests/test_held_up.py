"""A GPU that has its work and does not begin it: that is no overhead of the host."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script

US, MS = 1_000, 1_000_000
STEPS, STEP = 7, 10 * MS


def replays(idle_ns):
    """Steps of one graph launch with two kernels, between which the GPU idles for so long."""
    script = Script()
    for k in range(STEPS):
        at = k * STEP
        script.range(f"ProfilerStep#{k}", at, at + STEP)
        graph = {"correlation": 1_000 + k, "api": "cudaGraphLaunch", "graph": True}
        launch = (at + 100 * US, at + 150 * US)
        begin, end = at + 160 * US, at + STEP - 10 * US
        middle = begin + (end - begin - idle_ns) // 2
        script.op("kernel", begin, middle, launch, **graph)
        script.op("kernel", middle + idle_ns, end, launch, **graph)
    return script


def analysed(script, tmp_path):
    path = kineto.write(script.build(), tmp_path / "trace.json")
    return traceprobe.analyze(traceprobe.load(path))


def test_idle_time_between_two_nodes_of_a_graph_is_no_overhead(tmp_path):
    idle_ns = 4 * MS
    report = analysed(replays(idle_ns), tmp_path)
    summary = report.ranks[0].summary
    assert summary.host.held_idle_ns == summary.iterations_used * idle_ns
    assert report.verdict.shares["overhead"] < 0.05
    assert report.verdict.shares["other"] == pytest.approx(idle_ns / STEP, abs=0.02)
    assert report.verdict.bound == "inconclusive"
    assert "its work was launched in time" in report.verdict.missing[0]
    findings = {finding.id: finding for finding in report.findings}
    assert findings["host-overhead"].status == "pass"
    found = findings["unexplained-idle"]
    assert found.status == "fail"
    assert found.evidence[1].startswith("for 4.00 ms per step of it the work was launched in time")
    assert "launching less does not help" in found.advice
    assert "another process" in found.advice


def test_a_host_that_is_late_is_not_called_punctual(tmp_path):
    script = Script()
    for k in range(STEPS):
        at = k * STEP
        script.range(f"ProfilerStep#{k}", at, at + STEP)
        for part in range(2):
            begin = at + part * STEP // 2 + 2 * MS
            script.op("kernel", begin + 10 * US, begin + 2 * MS, (begin, begin + 5 * US))
    report = analysed(script, tmp_path)
    assert report.ranks[0].summary.host.held_idle_ns == 0
    found = next(f for f in report.findings if f.id == "unexplained-idle")
    assert not any("launched in time" in text for text in (*found.evidence, found.advice or ""))

"""Findings name the place in the program that their time belongs to."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.rendering import terminal_of
from traceprobe.records.report import Finding
from traceprobe.records.site import Site
from traceprobe.render.places import place, places

US = 1_000


def loop(steps=10, *, checkpoint=None):
    """Steps that load in `data.py`, wait in `train.py:57`, and compute for `model.py`."""
    script, at = Script(), 0
    for k in range(steps):
        begin = at
        script.range("data_loading", at, at + 3_000 * US)
        script.operator("data.py(9): decode", at + 200 * US, at + 2_800 * US)
        at += 3_000 * US
        script.operator("model.py(31): forward", at, at + 500 * US)
        script.operator("aten::mul", at + 50 * US, at + 400 * US)
        launch = (at + 100 * US, at + 110 * US)
        script.op("kernel", at + 200 * US, at + 2_200 * US, launch, name="elementwise_kernel")
        script.operator("train.py(57): train", at + 600 * US, at + 5_000 * US)
        script.operator("aten::item", at + 650 * US, at + 2_400 * US)
        script.call("cudaStreamSynchronize", at + 700 * US, at + 2_300 * US)
        at += 5_000 * US
        script.op("kernel", at, at + 100 * US, (at - 60 * US, at - 50 * US), name="adam")
        at += 200 * US
        if k == checkpoint:
            script.operator("train.py(90): save", at, at + 90_000 * US)
            script.op(
                "kernel", at + 85_000 * US, at + 86_000 * US, (at + 84_900 * US, at + 84_950 * US)
            )
            at += 90_000 * US
        script.range(f"step {k}", begin, at)
    return script


def findings_of(script, folder):
    path = kineto.write(script.build(), folder / "trace.json")
    report = traceprobe.analyze(traceprobe.load(path))
    return report, {finding.id: finding for finding in report.findings}


def test_each_finding_names_its_own_line(tmp_path):
    report, found = findings_of(loop(), tmp_path)
    (wait, *_) = found["data-wait"].sites
    assert (wait.line, wait.within) == ("data.py(9): decode", "data_loading")
    assert wait.ms_per_step == pytest.approx(2.6)
    assert wait.part == pytest.approx(2.6 / 2.9, abs=0.05)
    (sync, *_) = found["synchronization"].sites
    assert (sync.line, sync.call) == ("train.py(57): train", "aten::item")
    (host, *_) = found["host-overhead"].sites
    assert host.line == "train.py(57): train"
    (kernels,) = found["unfused-kernels"].sites
    assert (kernels.line, kernels.call) == ("model.py(31): forward", "aten::mul")
    assert kernels.ms_per_step == pytest.approx(2.0)
    assert "at data.py:9 in decode, 2.60 ms a step" in terminal_of(report, 100, False)
    for finding in report.findings:
        if finding.status not in ("warn", "fail"):
            assert not finding.sites


def test_long_iterations_name_what_they_have_more_of(tmp_path):
    _, found = findings_of(loop(12, checkpoint=5), tmp_path)
    (site, *_) = found["long-iterations"].sites
    assert site.line == "train.py(90): save"
    assert site.ms_per_step == pytest.approx(90, abs=1.5)
    assert site.part > 0.95


def test_a_trace_without_owners_of_that_time_has_no_sites(tmp_path):
    script = Script()
    for k in range(6):
        at = k * 1_000 * US
        script.op("kernel", at, at + 900 * US, None, name="elementwise_kernel")
    _, found = findings_of(script, tmp_path)
    assert all(not finding.sites or finding.sites[0].call for finding in found.values())


@pytest.mark.parametrize(
    ("line", "within", "call", "words"),
    [
        ("net/model.py(7): f", "Net / A", "aten::mm", "at net/model.py:7 in f (aten::mm)"),
        ("net/model.py(7): f", None, None, "at net/model.py:7 in f"),
        (None, "Net / A", "aten::mm", "in Net / A (aten::mm)"),
        (None, None, "aten::mm", "in aten::mm"),
        ("3f786850e3", None, None, "at 3f786850e3"),
        ("x" * 300 + ".py(7): f", None, None, "at …" + "x" * 76 + ".py:7 in f"),
    ],
)
def test_a_place_is_said_as_far_as_it_is_known(line, within, call, words):
    assert place(Site(line=line, within=within, call=call, ms_per_step=1.0, part=1.0)) == words


@pytest.mark.parametrize(("saving_ms", "amount"), [(9.0, "6.50 ms a step"), (None, "65 % of it")])
def test_what_has_no_saving_per_step_has_no_amount_per_step(saving_ms, amount):
    site = Site(line=None, within=None, call="aten::item", ms_per_step=6.5, part=0.65)
    finding = Finding(
        id="host-overhead",
        status="fail",
        title="",
        saving_ms_per_step=saving_ms,
        evidence=[],
        advice="",
        sites=[site],
    )
    assert places(finding) == [("in aten::item", amount)]

"""Findings name the place in the program that their time belongs to."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.rendering import terminal_of
from traceprobe.findings.host_pauses import longest
from traceprobe.findings.host_stalls import look_at
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


def test_unaligned_products_name_the_line_that_multiplies(tmp_path):
    script = Script()
    for k in range(6):
        at = k * 2_000 * US
        script.range(f"step {k}", at, at + 2_000 * US)
        for line, name, t0 in (
            ("model.py(40): forward", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f", 0),
            ("model.py(93): forward", "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_align1", 800),
        ):
            begin = at + t0 * US
            script.operator(line, begin, begin + 100 * US)
            script.operator("aten::mm", begin + 10 * US, begin + 90 * US)
            launch = (begin + 20 * US, begin + 30 * US)
            script.op("kernel", begin + 40 * US, begin + 790 * US, launch, name=name)
    _, found = findings_of(script, tmp_path)
    (site,) = found["unaligned-matmul"].sites
    assert (site.line, site.call) == ("model.py(93): forward", "aten::mm")


def test_kernels_of_a_graph_count_for_where_a_findings_time_is(tmp_path):
    """No operator launches them, and one beside the graph has hardly any of the time."""
    script = Script()
    for k in range(6):
        at = k * 10_000 * US
        script.range(f"step {k}", at, at + 9_900 * US)
        script.operator("aten::gelu", at + 15 * US, at + 50 * US)
        launch = (at + 20 * US, at + 30 * US)
        script.op("kernel", at + 40 * US, at + 240 * US, launch, name="elementwise_kernel")
        for n in range(4):
            begin = at + (300 + 2_000 * n) * US
            script.op(
                *("kernel", begin, begin + 1_990 * US, (at + 60 * US, at + 90 * US)),
                name="reduce_kernel",
                correlation=1_000 + k,
                api="cudaGraphLaunch",
                graph=True,
            )
    _, found = findings_of(script, tmp_path)
    graph, operator = found["unfused-kernels"].sites
    assert graph.call == "reduce_kernel"
    assert graph.part == pytest.approx(0.97, abs=0.01)
    assert (operator.call, operator.part) == ("aten::gelu", pytest.approx(0.025, abs=0.001))


def test_launches_of_an_optimizer_name_the_line_that_updates(tmp_path):
    script = Script()
    for k in range(6):
        at = k * 10_000 * US
        script.range(f"step {k}", at, at + 9_900 * US)
        script.op("kernel", at + 100 * US, at + 5_000 * US, (at + 20 * US, at + 30 * US))
        begin = at + 5_100 * US
        script.operator("train.py(57): train", begin, at + 9_800 * US)
        script.operator("Optimizer.step#AdamW.step", begin + US, at + 9_790 * US)
        for n in range(100):
            launch = begin + (10 + 40 * n) * US
            times = (launch + 10 * US, launch + 35 * US)
            script.op("kernel", *times, (launch, launch + 5 * US), name="MulFunctor")
    _, found = findings_of(script, tmp_path)
    (site,) = found["optimizer-launches"].sites
    assert (site.line, site.part) == ("train.py(57): train", 1.0)


def test_passes_in_the_closure_of_an_optimizer_are_not_placed_in_its_step(tmp_path):
    """As Lightning has them."""
    script = Script()
    for k in range(6):
        at = k * 10_000 * US
        script.range(f"step {k}", at, at + 9_900 * US)
        script.range("Optimizer.step#AdamW.step", at + US, at + 9_890 * US)
        script.range("forward", at + 10 * US, at + 200 * US)
        script.operator("aten::gelu", at + 15 * US, at + 50 * US)
        launch = (at + 20 * US, at + 30 * US)
        script.op("kernel", at + 40 * US, at + 9_000 * US, launch, name="elementwise_kernel")
        launch = (at + 9_100 * US, at + 9_110 * US)
        script.op("kernel", at + 9_120 * US, at + 9_800 * US, launch, name="elementwise_kernel")
    _, found = findings_of(script, tmp_path)
    (site,) = found["unfused-kernels"].sites
    assert (site.within, site.call) == ("forward", "aten::gelu")
    (update,) = found["optimizer-cost"].sites
    assert update.within == "Optimizer.step#AdamW.step"


def test_long_iterations_name_what_they_have_more_of(tmp_path):
    _, found = findings_of(loop(12, checkpoint=5), tmp_path)
    (site, *_) = found["long-iterations"].sites
    assert site.line == "train.py(90): save"
    # Of the mean step, as what is saved is: one of eleven saves.
    assert site.ms_per_step == pytest.approx(90 / 11, abs=0.2)
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
        ("net/model.py: f", None, None, "in f (net/model.py)"),
        ("net/model.py: f", "Net", "aten::mm", "in f (net/model.py: aten::mm)"),
        ("net/model.py(7): f", "Net / A", "aten::mm", "at net/model.py:7 in f (aten::mm)"),
        ("net/model.py(7): f", None, None, "at net/model.py:7 in f"),
        (None, "Net / A", "aten::mm", "in Net / A (aten::mm)"),
        (None, None, "aten::mm", "in aten::mm"),
        ("3f786850e3", None, None, "at 3f786850e3"),
        (None, None, "void at::f<4, MulFunctor<float>>(int)", "in f"),
        (None, None, "## Call CompiledFxGraph f4lgtxvqppsp ##", "in compiled graph f4lgtxvq"),
        ("a.py(7): f", None, "aten::item", "at a.py:7 in f (aten::item)"),
        ("x" * 300 + ".py(7): f", None, None, "at …" + "x" * 76 + ".py:7 in f"),
    ],
)
def test_a_place_is_said_as_far_as_it_is_known(line, within, call, words):
    assert place(Site(line=line, within=within, call=call, ms_per_step=1.0, part=1.0)) == words


@pytest.mark.parametrize(
    ("line", "within", "words"),
    [
        (None, None, "before aten::randn"),
        (None, "Net / A", "before aten::randn in Net / A"),
        ("a.py(7): f", "Net / A", "before aten::randn at a.py:7 in f"),
        ("a.py: f", None, "before aten::randn in f (a.py)"),
    ],
)
def test_what_an_operator_ended_is_before_it(line, within, words):
    call = "aten::randn"
    site = Site(line=line, within=within, call=call, ms_per_step=1.0, part=1.0, before=True)
    assert place(site) == words


def pausing(program):
    """Steps of 20 ms, of which Python takes 12; `program(script, at)` notes where."""
    script, at = Script(), 0
    for k in range(8):
        begin = at
        script.range(f"step {k}", begin, at + 20_000 * US)
        script.operator("aten::mm", at, at + 50 * US)
        script.op("kernel", at + 30 * US, at + 4_000 * US, (at + 10 * US, at + 20 * US))
        program(script, at)
        at += 16_000 * US
        script.operator("aten::randn", at, at + 50 * US)
        script.op("kernel", at + 30 * US, at + 3_900 * US, (at + 10 * US, at + 20 * US))
        at = begin + 20_000 * US
    return script


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda script, at: None, "before aten::randn"),
        (
            lambda script, at: script.operator("aten::sort", at + 60 * US, at + 15_900 * US),
            "in aten::sort",
        ),
        (
            lambda script, at: script.operator("train.py(9): log", at + 60 * US, at + 15_990 * US),
            "at train.py:9 in log",
        ),
        (
            lambda script, at: script.operator(
                "def train.py(9): log", at + 60 * US, at + 15_990 * US
            ),
            "in log (train.py)",
        ),
    ],
    ids=["nothing recorded", "an operator", "a line of our recording", "a frame of PyTorch's"],
)
def test_a_place_is_where_the_host_was_or_else_before_what_it_did_next(program, words, tmp_path):
    report, found = findings_of(pausing(program), tmp_path)
    told = [f for f in found.values() if f.id.startswith(("host-", "unexplained"))]
    asking = [f for f in told if f.status in ("warn", "fail")]
    assert [places(f)[0][0] for f in asking] == [words] * len(asking)
    assert asking
    assert words in terminal_of(report, 100, False)


def site(line, ms, part=0.5):
    return Site(line=line, within=None, call=None, ms_per_step=ms, part=part)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.py(7): f", "Look at that line"),
        ("a.py: f", "Look at that function"),
        ("a.py: <listcomp>", "Look at that function"),
        (None, ""),
    ],
)
def test_one_is_sent_to_a_line_only_where_one_is_known(line, words):
    place_of = Site(line=line, within="Net", call="aten::mm", ms_per_step=1.0, part=1.0)
    assert look_at([place_of]) == words


def test_the_places_of_pauses_have_no_more_time_than_there_are_pauses():
    late = [site("a.py(7): f", 6.0), site("a.py(9): f", 3.0), site("a.py(11): f", 2.0)]
    assert longest(late, 4.0) == [site("a.py(7): f", 4.0, 1.0)]
    assert longest(late, 8.0) == [site("a.py(7): f", 6.0, 0.75), site("a.py(9): f", 2.0, 0.25)]


def test_the_line_of_a_def_is_in_no_record(tmp_path):
    def log(script, at):
        script.operator("def /home/me/p/train.py(9): log", at + 60 * US, at + 15_990 * US)

    report, _ = findings_of(pausing(log), tmp_path)
    assert "train.py: log" in report.ranks[0].tree.names
    assert not any("(9)" in name or "/home" in name for name in report.ranks[0].tree.names)


@pytest.mark.parametrize(
    ("saving_ms", "amount"),
    [
        (9.0, "6.50 ms a step"),
        (None, "65 % of it"),
        (3.0, "65 % of it"),
        (19.0, "6.50 ms a step"),
        (21.0, "65 % of it"),
    ],
    ids=["less", "no saving", "more than the finding", "half of it", "paid for elsewhere"],
)
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

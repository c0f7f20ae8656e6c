"""Whose GPU a run used, and that its findings are in the words of that vendor."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence, finding_of
from tests.lazy import Lazy
from traceprobe.findings import RULES
from traceprobe.findings.vendors import in_words_of
from traceprobe.records.rank import DeviceInfo
from traceprobe.verdict.no_training import why_no_training

traceprobe = Lazy("traceprobe")

NVIDIAS = re.compile(
    r"cuDNN|cuBLAS|(?<![A-Z_])NCCL(?!_)|[Tt]ensor core|nsys|nvidia-smi|Nsight|CUPTI|DCGM"
    r"|CUDA (graph|call|runtime|context)|CUDA's"
)
"""What a run on AMD's GPUs has another name for, or has not at all."""


def device(name, warp_size=None, kind="gpu"):
    return DeviceInfo(index=0, name=name, kind=kind, warp_size=warp_size)


def on_amd(rank):
    return replace(rank, device=replace(rank.device, name="AMD Instinct MI300X", warp_size=64))


def step(**parts):
    return {"forward": 1000 - sum(parts.values()), **parts}


@pytest.mark.parametrize(
    ("info", "vendor"),
    [
        (device("AMD Instinct MI300X", 64), "amd"),
        (device("", 64), "amd"),  # ROCm 7 gives no name
        (device("AMD Radeon PRO W7900", 32), "amd"),
        (device("Instinct MI210"), "amd"),
        (device("NVIDIA H200", 32), "nvidia"),
        (device("Tesla V100-SXM2-16GB"), "nvidia"),
        (device(None), "nvidia"),
        (device("AMD EPYC 9575F", kind="cpu"), None),
    ],
)
def test_the_vendor_is_told_by_name_and_wavefront(info, vendor):
    assert info.vendor == vendor


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_and_what_verifies_them_are_in_the_words_of_amd(rule):
    for text in (rule.title, rule.definition, rule.verify):
        assert not NVIDIAS.search(in_words_of("amd", text))
        assert in_words_of("nvidia", text) == in_words_of(None, text) == text


@pytest.mark.parametrize(
    "parts",
    [
        {"idle_host": 500, "idle_sync": 200},
        {"communication": 600, "idle_latency": 100},
        {"idle_data_wait": 500, "h2d": 200},
    ],
    ids=lambda parts: "-".join(parts),
)
def test_findings_of_a_run_on_amd_name_nothing_of_nvidia(parts):
    from traceprobe.findings import find_all

    kernels = {n: v * records.MS for n, v in (("matmul_fp32", 900), ("layout", 900))}
    made = records.rank(step(**parts), kernel_ns=kernels)
    for finding in find_all(evidence(on_amd(made))):
        said = [finding.title, finding.advice, finding.rule, finding.verify, *finding.evidence]
        assert [text for text in said if NVIDIAS.search(text)] == []


@pytest.mark.parametrize("vendor", [None, "amd"])
def test_a_cold_start_is_told_to_warm_up_with_tools_of_the_vendor(vendor):
    made = records.rank(step(idle_host=500))
    host = replace(made.summary.host, set_up_idle_ns=made.summary.window_ns // 2)
    made = replace(made, summary=replace(made.summary, host=host))
    (why,) = why_no_training([on_amd(made) if vendor else made], evidence(made).quality)
    assert "a cold start" in why
    assert ("Nsight" in why) is (vendor is None)


def test_advice_differs_where_amd_has_something_else():
    made = records.rank(step(), kernel_ns={"layout": 2000 * records.MS})
    assert "tensor cores" in finding_of("memory-format", made).advice
    advice = finding_of("memory-format", on_amd(made)).advice
    assert "matrix cores" in advice
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC" in advice
    slow = records.rank(step(), kernel_ns={"matmul_fp32": 3000 * records.MS})
    assert finding_of("tf32-off", on_amd(slow)).status == "not-applicable"


@pytest.mark.slow
def test_a_real_run_on_mi300x_gets_the_advice_of_amd(corpus):
    path = corpus / "kineto" / "tl_mi300_resnet_ddp8_rank0.json.gz"
    report = traceprobe.analyze(traceprobe.load(path))
    assert report.ranks[0].device.vendor == "amd"
    for finding in report.findings:
        for text in (finding.advice, finding.verify, finding.rule, *finding.evidence):
            assert not NVIDIAS.search(text), (finding.id, text)

"""Peaks of the machine: measured where the tests run, so only that they are rates, and of what."""

from __future__ import annotations

import json
from itertools import chain

import pytest

from tests.cli_runner import Cli
from tests.lazy import Lazy
from traceprobe.capture.machine import device_peaks
from traceprobe.records import kinds

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


@pytest.fixture
def small(monkeypatch):
    """Few and small products on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device_peaks, "CPU_SIDE", 64)
    monkeypatch.setattr(device_peaks, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(device_peaks, "COPIED_BYTES", {"cpu": 1 << 16})


def test_the_median_of_several_times_counts(monkeypatch):
    times = [(0, 11), (20, 32), (40, 53), (60, 79), (80, 91)]
    warm_up = (0.0, 1.0)
    clock = iter([*warm_up, *chain.from_iterable(times)])
    monkeypatch.setattr(device_peaks.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(device_peaks, "WARM_UP_SECONDS", 0.5)
    assert device_peaks._seconds(lambda: None, torch.device("cpu")) == 12


def test_a_rate_is_the_work_over_its_time(small, monkeypatch):
    monkeypatch.setattr(device_peaks, "_seconds", lambda work, device: work() is not None and 2e-6)
    found = device_peaks.measure_device_peaks()
    assert (found.device, found.kind, found.side) == ("CPU", "cpu", 64)
    rate = round(2 * 64**3 / 2e-6 / 1e12, 4)
    assert found.tflops == {"fp32": rate, "bf16": rate}
    assert found.copy_gbps == round(2 * (1 << 16) / 2e-6 / 1e9, 2)
    assert found.h2d_gbps is None


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ((6, 0), ["fp32"]),
        ((7, 0), ["fp32", "fp16"]),
        ((8, 0), ["fp32", "tf32", "fp16", "bf16"]),
        ((9, 0), ["fp32", "tf32", "fp16", "bf16", "fp8"]),
    ],
)
def test_only_what_the_device_has_is_measured(monkeypatch, capability, precisions):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    assert device_peaks._precisions(torch.device("cuda", 0)) == precisions


def test_a_rate_that_rounds_to_nothing_is_no_peak(
    small, tmp_path, samples, monkeypatch, capfdbinary
):
    monkeypatch.setattr(device_peaks, "_seconds", lambda work, device: work() is not None and 1e6)
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    cli("roofline", "--measure", "-o", "peaks.json").expect(0)
    assert set(kinds.read((tmp_path / "peaks.json").read_bytes()).tflops.values()) == {0.0}
    trace = samples / "cpu_convnet.json.gz"
    cli(
        "analyze", trace, "--peaks", "peaks.json", "--flops-per-step", "1e9", "-o", "report.json"
    ).expect(0)
    roofline = json.loads((tmp_path / "report.json").read_text())["roofline"]
    assert roofline["measured"]["tflops"] == {}


def test_the_command_writes_what_analyze_reads(small, tmp_path, samples, monkeypatch, capfdbinary):
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    done = cli("roofline", "--measure", "-o", "peaks.json").expect(0)
    assert "no GPU is visible" in done.err
    peaks = kinds.read((tmp_path / "peaks.json").read_bytes())
    assert all(rate >= 0 for rate in peaks.tflops.values())
    assert peaks.torch == torch.version.__version__
    cpu = samples / "cpu_convnet.json.gz"
    cli(
        "analyze", cpu, "--peaks", "peaks.json", "--flops-per-step", "1e9", "-o", "report.json"
    ).expect(0)
    refused = cli("roofline", samples / "h200_unet_w1.json.gz", "--peaks", "peaks.json").expect(2)
    assert "measured on CPU, the trace has NVIDIA H200" in refused.err
    again = cli("roofline", "--measure", "-o", "peaks.json").expect(2)
    assert "exists" in again.err

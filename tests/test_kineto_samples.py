"""Counters that PyTorch's profiler samples: rows of a trace to what a report says of the GPU."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.scenario import Script
from traceprobe.ingest.kineto.gpu_samples import gpu_samples
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.events import GPU_SAMPLES
from traceprobe.model.quality import Quality
from traceprobe.model.taxonomy import GPU_METRICS

US = 1000
SMS = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__inst_executed_pipe_tensor_realtime.avg.pct_of_peak_sustained_elapsed"


def with_samples(path, samples, process="GPU 0 Counters"):
    """A trace with samples (µs from its first kernel, value) by counter, as Kineto writes them."""
    content = json.loads(path.read_text())
    events = content["traceEvents"]
    zero = min(e["ts"] for e in events if e.get("cat") == "kernel")
    events += [
        {"ph": "C", "cat": "hardware_counters", "name": name, "pid": process, "tid": 0}
        | {"ts": zero + at, "args": {"": value}}
        for name, rows in samples.items()
        for at, value in rows
    ]
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def busy(tmp_path):
    """A trace of one kernel of 1 ms."""
    return kineto.write(Script().op("kernel", 1000 * US, 2000 * US).build(), tmp_path / "run.json")


def rows_of(path, metric):
    trace = read_trace(path)
    zero = trace.gpu_ops["t0"].min()
    mine = trace.gpu_samples.filter(pl.col("metric") == GPU_METRICS.index(metric))
    return [
        (t0 - zero, t1 - zero, percent)
        for t0, t1, percent in mine.select("t0", "t1", "percent").rows()
    ]


def test_a_sample_stands_for_the_time_until_the_next(busy):
    values = [(-300, 9), (0, 10.4), (100, 20.6), (200, 30), (700, 40), (800, 50), (1000, 60)]
    assert rows_of(with_samples(busy, {SMS: values}), "sm_active") == [
        (0, 100 * US, 10),
        (100 * US, 200 * US, 21),
        (200 * US, 350 * US, 30),  # samples after it are missing; 150 µs are usual
        (700 * US, 800 * US, 40),
        (800 * US, 1000 * US, 50),
    ]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        (TENSOR, "tensor_active"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor_active"),
        ("dram__read_throughput.avg.pct_of_peak_sustained_elapsed", "dram_read"),
        ("dramc__write_throughput.avg.pct_of_peak_sustained_elapsed", "dram_write"),
        ("nvltx__bytes.avg.pct_of_peak_sustained_elapsed", "nvlink_tx"),
        ("pcie__read_bytes.avg.pct_of_peak_sustained_elapsed", "pcie_rx"),
    ],
)
def test_counters_have_the_names_of_cupti(busy, name, metric):
    assert rows_of(with_samples(busy, {name: [(0, 5), (100, 7)]}), metric) == [
        (0, 100 * US, 5),
        (100 * US, 200 * US, 7),
    ]


@pytest.mark.parametrize(
    "sample",
    [
        {"name": "sm__cycles_active.avg"},
        {"name": "sm__cycles_active.avg.per_second"},
        {"name": 7},
        {"pid": "GPU Counters"},
        {"pid": 0},
        {"pid": "GPU 3 Counters"},
        {"args": {"": "much"}},
        {"args": {"": -1}},
        {"args": {"": 111}},
        {"args": {"": {"deep": 1}}},
        {"args": {}},
        {"ts": "later"},
        {"ph": "X"},
        {"ts": 1e15},
    ],
)
def test_what_says_nothing_of_the_gpu_is_left_out(busy, sample):
    path = with_samples(busy, {SMS: [(0, 5), (100, 7)]})
    content = json.loads(path.read_text())
    for event in content["traceEvents"]:
        if event.get("cat") == "hardware_counters":
            event.update(sample)
    path.write_text(json.dumps(content))
    assert read_trace(path).gpu_samples.rows() == []


def test_of_two_counters_of_one_unit_the_first_counts(busy):
    other = TENSOR.replace("_realtime", "")
    path = with_samples(busy, {TENSOR: [(0, 5), (100, 5)], other: [(0, 90), (50, 90), (100, 90)]})
    assert [row[2] for row in rows_of(path, "tensor_active")] == [5, 5]


@pytest.mark.parametrize("code", ["clock-offset", "clocks-disagree"])
def test_nobody_knows_what_was_sampled_where_the_clocks_differ(code):
    rows = {name: np.zeros(2, np.int64) for name in ("gpu", "metric", "counter")}
    rows |= {"t0": np.array([0, 10]), "percent": np.array([5, 5])}
    ops = {"pid": np.array([1]), "device": np.array([0]), "t0": np.array([0]), "t1": np.array([20])}
    quality = Quality()
    assert len(gpu_samples(rows, ops, quality)["t0"]) == 2
    quality.warn(code, "The clocks differ.")
    assert len(gpu_samples(rows, ops, quality)["t0"]) == 0


def test_a_report_has_the_counters(tmp_path):
    loop = Loop(forward_ns=400 * US, backward_ns=900 * US)
    path = kineto.write(loop.scenario(), tmp_path / "loop.json")
    plain = traceprobe.analyze(traceprobe.load(path)).ranks[0].summary
    until = int((read_trace(path).gpu_ops["t1"].max() - read_trace(path).gpu_ops["t0"].min()) / US)
    with_samples(path, {SMS: [(at, 60) for at in range(0, until, 10)]})
    report = traceprobe.analyze(traceprobe.load(path))
    summary = report.ranks[0].summary
    assert summary.gpu_metrics.step.sm_active == 0.6
    assert summary.gpu_metrics.interval_us == 10
    assert summary.partition_ns == plain.partition_ns
    assert read_trace(path).gpu_samples.schema == GPU_SAMPLES
    assert "60 % of its multiprocessors have work" in report.to_html()

"""Counters that Nsight Systems samples: from its tables to means by step, phase and iteration."""

from __future__ import annotations

import gzip
from functools import partial

import msgspec
import numpy as np
import polars as pl
import pytest

import traceprobe
from tests.builders import nsight
from tests.builders.loop import Loop
from tests.builders.nsight import add_counters
from tests.builders.scenario import Process, Script, merge
from tests.conftest import ROOT
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.events import GPU_SAMPLES, frame
from traceprobe.model.taxonomy import GPU_METRICS
from traceprobe.slicing.slice_trace import slice_trace
from traceprobe.timeline import gpu_metrics
from traceprobe.timeline.intervals import Intervals

US = 1000
LOOP = Loop(forward_ns=400 * US, backward_ns=900 * US)  # kernels of 100 and of 225 µs
SMS, READ = "SMs Active [Throughput %]", "DRAM Read Bandwidth [Throughput %]"


def busy_gpu(tmp_path, until=1000):
    """An export of one kernel that runs from 0 to `until` µs."""
    script = Script().op("kernel", 0, until * US)
    return nsight.write(script.build(), tmp_path / "run.sqlite")


def samples_of(path):
    return read_trace(path).gpu_samples


def of(samples, metric):
    chosen = samples.filter(pl.col("metric") == GPU_METRICS.index(metric))
    return chosen.select("t0", "t1", "percent").rows()


def test_a_sample_stands_for_the_time_until_the_next(tmp_path):
    times = (-100, 0, 100, 200, 300, 410, 800, 1100)
    rows = [(t * US, n) for n, t in enumerate(times)]
    path = add_counters(busy_gpu(tmp_path), {SMS: rows})
    assert of(samples_of(path), "sm_active") == [
        (0, 100 * US, 1),  # the one before is before all work
        (100 * US, 200 * US, 2),
        (200 * US, 300 * US, 3),
        (300 * US, 410 * US, 4),
        (410 * US, 510 * US, 5),  # samples after it are missing
        (800 * US, 900 * US, 6),  # the last is after all work
    ]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("SM Active [Throughput %]", "sm_active"),
        ("TENSOR ACTIVE / FP16 Active", "tensor_active"),
        ("VRAM Write Bandwidth [Throughput %]", "dram_write"),
        ("NVLink bytes transmitted [Throughput %]", "nvlink_tx"),
        ("PCIe RX Throughput [Throughput %]", "pcie_rx"),
    ],
)
def test_gpus_call_their_counters_differently(tmp_path, name, metric):
    path = add_counters(busy_gpu(tmp_path), {name: [(100 * US, 1), (200 * US, 2)]})
    assert [row[2] for row in of(samples_of(path), metric)] == [1, 2]


def test_counters_of_other_units_and_values_that_are_no_percent_are_left_out(tmp_path):
    samples = {
        "Compute Warps in Flight [Avg]": [(100 * US, 5)],
        "SMs Active [Avg]": [(100 * US, 5)],
        SMS: [(100 * US, -1), (200 * US, 104), (300 * US, 1 << 40), (400 * US, 7)],
    }
    path = add_counters(busy_gpu(tmp_path), samples)
    nsight.edit(path, "INSERT INTO GPU_METRICS VALUES (NULL, 0, 2, 3), ('x', 0, 'y', 'z')")
    found = samples_of(path)
    assert [row[::2] for row in of(found, "sm_active")] == [(200 * US, 100), (400 * US, 7)]
    assert found["metric"].unique().to_list() == [0]


def test_bytes_of_links_are_the_sum_of_what_they_are_for(tmp_path):
    parts = ("Requests User", "Requests Protocol", "Responses User", "Responses Protocol")
    samples = {
        f"NVLink RX {part} Data [Throughput %]": [(100 * US, n + 1), (200 * US, 30)]
        for n, part in enumerate(parts)
    }
    found = samples_of(add_counters(busy_gpu(tmp_path), samples))
    assert [row[2] for row in of(found, "nvlink_rx")] == [10, 100]


def test_what_is_there_twice_counts_once(tmp_path):
    path = add_counters(busy_gpu(tmp_path), {SMS: [(100 * US, 30), (100 * US, 30), (200 * US, 10)]})
    add_counters(path, {SMS: []})
    assert [row[::2] for row in of(samples_of(path), "sm_active")] == [
        (100 * US, 30),
        (200 * US, 10),
    ]


def test_each_process_has_the_samples_of_its_own_gpu(tmp_path):
    one = Script(Process(1000, devices=("A", "B"))).op("kernel", 0, 900 * US, device=1)
    two = Script(Process(2000, devices=("A", "B"))).op("kernel", 0, 900 * US, device=0)
    path = nsight.write(merge(one.build(), two.build()), tmp_path / "two.sqlite")
    add_counters(path, {SMS: [(100 * US, 1), (200 * US, 1)]}, gpu=0)
    nsight.edit(
        path, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 0 WHERE pid = 1000 AND cudaId = 1"
    )
    nsight.edit(path, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 5 WHERE pid = 2000")
    assert samples_of(path).select("pid", "device").unique().rows() == [(1000, 1)]


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE TARGET_INFO_GPU_METRICS",
        "UPDATE TARGET_INFO_GPU_METRICS SET metricName = NULL",
        "ALTER TABLE GPU_METRICS RENAME COLUMN value TO reading",
        "DELETE FROM GPU_METRICS",
        "UPDATE GPU_METRICS SET value = 'much'",
        "UPDATE GPU_METRICS SET typeId = 3",
    ],
)
def test_tables_that_say_nothing_give_no_samples_and_no_error(tmp_path, damage):
    path = add_counters(busy_gpu(tmp_path), {SMS: [(100 * US, 1), (200 * US, 2)]})
    assert len(samples_of(path)) == 2
    assert samples_of(nsight.edit(path, damage)).rows() == []


def series(*rows):
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    t0, t1, percent = columns
    zeros = np.zeros(len(t0), dtype=np.int64)
    return frame(
        GPU_SAMPLES,
        {"pid": zeros, "device": zeros, "metric": zeros, "t0": t0, "t1": t1, "percent": percent},
    )


@pytest.mark.parametrize(
    ("stretches", "least", "mean"),
    [
        ([(0, 30)], 0, 0.2),  # 10, 20 and 30 %
        ([(5, 15)], 0, 0.15),
        ([(0, 5), (25, 30)], 0, 0.2),
        ([(25, 35)], 0, 0.3),  # half of it is sampled
        ([(25, 36)], 0, None),
        ([(100, 200)], 0, None),
        ([(0, 30)], 31, None),
        ([], 0, None),
    ],
)
def test_a_mean_is_weighted_by_what_of_each_sample_lies_inside(stretches, least, mean):
    rows = series((0, 10, 10), (10, 20, 20), (20, 30, 30))
    t0, t1 = np.array(stretches, dtype=np.int64).reshape(-1, 2).T
    found = gpu_metrics.mean_within(rows, Intervals(t0, t1), least)
    assert found == (None if mean is None else pytest.approx(mean))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """An export of a loop, what is said of it, and the times of samples of it."""
    scenario = LOOP.scenario()
    path = nsight.write(scenario, tmp_path_factory.mktemp("sampled") / "loop.sqlite")
    plain = traceprobe.analyze(traceprobe.load(path)).ranks[0]
    account_ops = read_trace(path).gpu_ops
    interval = 10 * US
    times = np.arange(account_ops["t0"].min() + interval, account_ops["t1"].max(), interval)
    return path, plain, times, interval


def test_a_report_has_the_counters_by_step_phase_and_iteration(sampled, tmp_path):
    path, plain, times, interval = sampled
    zero = int(read_trace(path).gpu_ops["t0"].min())
    half = [(int(t), 80 if (t - zero) // (2 * interval) % 2 else 20) for t in times]
    copy = tmp_path / "loop.sqlite"
    copy.write_bytes(path.read_bytes())
    add_counters(copy, {SMS: [(int(t), 60) for t in times], READ: half})
    report = traceprobe.analyze(traceprobe.load(copy))
    summary = report.ranks[0].summary
    metrics = summary.gpu_metrics
    assert metrics.interval_us == interval / US
    assert metrics.step.sm_active == 0.6
    assert metrics.step.dram_read == pytest.approx(0.5, abs=0.02)
    assert metrics.step.tensor_active is None
    assert {phase.phase for phase in metrics.phases} >= {"forward", "backward"}
    assert all(phase.sm_active == 0.6 for phase in metrics.phases)
    assert len(metrics.iterations) == summary.iterations_used
    # Nothing else changes, and a report without counters has no such field.
    assert plain.summary.gpu_metrics is msgspec.UNSET
    assert summary.partition_ns == plain.summary.partition_ns
    table = report.frame("gpu_metrics")
    assert table.filter(phase="forward")["sm_active"].to_list() == [0.6]
    assert len(table) == 1 + len(metrics.phases) + len(metrics.iterations)
    assert "60 % of its multiprocessors have work" in report.to_html()


def test_a_phase_has_the_samples_that_lie_in_it(sampled, tmp_path):
    path, _, times, interval = sampled
    trace = read_trace(path)
    copy = tmp_path / "loop.sqlite"
    copy.write_bytes(path.read_bytes())
    kernels = trace.gpu_ops.filter(pl.col("t1") - pl.col("t0") == 225 * US)
    backward = kernels.select("t0", "t1").rows()
    assert len(backward) == 4 * LOOP.steps
    inside = [
        (int(t), 90 if any(a < t + interval and t < b for a, b in backward) else 0) for t in times
    ]
    metrics = (
        traceprobe.analyze(traceprobe.load(add_counters(copy, {READ: inside})))
        .ranks[0]
        .summary.gpu_metrics
    )
    by_phase = {phase.phase: phase.dram_read for phase in metrics.phases}
    assert by_phase["backward"] == pytest.approx(0.9, abs=0.001)
    assert by_phase["forward"] < 0.2


def test_samples_that_are_too_far_apart_have_no_means(sampled, tmp_path):
    path, _, times, _ = sampled
    copy = tmp_path / "loop.sqlite"
    copy.write_bytes(path.read_bytes())
    add_counters(copy, {SMS: [(int(times[0]), 50), (int(times[-1]), 50)]})
    summary = traceprobe.analyze(traceprobe.load(copy)).ranks[0].summary
    metrics = summary.gpu_metrics
    assert metrics is msgspec.UNSET or metrics.phases == []


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A real export, plain: eight matrix products on an H200, sampled each 100 µs."""
    path = tmp_path_factory.mktemp("real") / "h200.sqlite"
    packed = (ROOT / "sample_traces" / "h200_gpu_metrics.sqlite.gz").read_bytes()
    path.write_bytes(gzip.decompress(packed))
    return path


def test_a_real_export_has_the_counters_by_which_its_kernels_are_known(real):
    trace = read_trace(real)
    samples = trace.gpu_samples
    assert {GPU_METRICS[number] for number in samples["metric"].unique()} == {
        *("sm_active", "tensor_active", "dram_read", "dram_write", "pcie_rx", "pcie_tx")
    }
    assert samples.select("pid", "device").unique().rows() == (
        trace.gpu_ops.select("pid", "device").unique().rows()
    )
    active = samples.filter(pl.col("metric") == GPU_METRICS.index("sm_active"))
    t0, t1 = active["t0"].to_numpy()[:, None], active["t1"].to_numpy()[:, None]
    assert {int(d) for d in np.ravel(t1 - t0)} == {99_999, 100_000}
    # Where no kernel runs for a part of a sample, fewer multiprocessors have work: only if the time
    # of a sample is the one it was counted in.
    starts, ends = (trace.gpu_ops[name].to_numpy() for name in ("t0", "t1"))
    busy = np.clip(np.minimum(ends, t1) - np.maximum(starts, t0), 0, None).sum(1)
    assert np.corrcoef(busy, active["percent"].to_numpy())[0, 1] > 0.7


def test_a_report_of_a_real_export_has_its_counters(real):
    report = traceprobe.analyze(traceprobe.load(real))
    step = report.ranks[0].summary.gpu_metrics.step
    # 512 blocks on 132 multiprocessors: the last of four waves does not fill them.
    assert step.sm_active == pytest.approx(512 / 132 / 4, abs=0.03)
    assert step.tensor_active < 0.01  # fp32
    assert step.dram_read + step.dram_write < 0.05
    assert step.nvlink_rx is None
    assert len(report.ranks[0].summary.gpu_metrics.iterations) == 7  # the last has no end
    assert report.roofline.sampled.tensor_active < 0.01
    assert "of its multiprocessors have work" in report.to_html()


@pytest.mark.parametrize("copy", [partial(slice_trace, steps=(0, 8)), anonymise_trace])
def test_copies_without_what_is_private_keep_known_counters(real, tmp_path, copy):
    source, target = tmp_path / "run.sqlite", tmp_path / "copy.sqlite"
    source.write_bytes(real.read_bytes())
    nsight.edit(
        source,
        "UPDATE TARGET_INFO_GPU_METRICS SET metricName = 'of the Secretproject' WHERE metricId = 2",
    )
    copy(source, target)
    before, after = (samples_of(path) for path in (source, target))
    assert after.select("metric", "percent").rows() == before.select("metric", "percent").rows()
    assert b"Secretproject" not in target.read_bytes()

"""Kernels that were counted instead of timed: `profiler_metrics` of PyTorch's profiler."""

from __future__ import annotations

import json

import pytest

import traceprobe
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.ingest.read_trace import read_trace
from traceprobe.slicing.slice_trace import slice_trace

FMA, READ = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "dram__bytes_read.sum"
PID = 100


def row(category, name, ts, dur, args=(), tid=PID, pid=PID):
    head = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return {**head, "ts": ts, "dur": dur, "args": dict(args)}


def counted(name, ts, **values):
    return row("cuda_profiler_range", name, ts, 50, values, tid=0, pid=0)


def write(path, *extra, launches=3):
    """Two operators, of which one is inside the other, that launch three kernels, counted later."""
    events = [
        row("user_annotation", "ProfilerStep#1", 0, 1000),
        row("cpu_op", "aten::linear", 100, 500, {"External id": 1}),
        row("cpu_op", "aten::addmm", 150, 200, {"External id": 2}),
        *(
            row("cuda_runtime", "cudaLaunchKernel", at, 5, {"correlation": n + 1})
            for n, at in enumerate((120, 200, 400)[:launches])
        ),
        # The profiler spreads its rows evenly, behind the time of the launches.
        counted("gemm", 5050, **{FMA: 70, READ: 7}),
        counted("copy", 5000, **{FMA: 0, READ: 10}),
        counted("copy", 5100, **{FMA: 0, READ: 20.5}),
        *extra,
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def frame_of(path):
    return traceprobe.analyze(traceprobe.load(path)).frame("kernel_counters")


def test_each_kernel_is_of_the_launch_with_its_number(tmp_path):
    rows = frame_of(write(tmp_path / "run.json")).drop("rank").rows()
    assert rows == [
        ("copy", "aten::linear", 2, FMA, 0.0),
        ("copy", "aten::linear", 2, READ, 30.5),
        ("gemm", "aten::addmm", 1, FMA, 70.0),
        ("gemm", "aten::addmm", 1, READ, 7.0),
    ]


def test_nothing_tells_the_launch_where_there_are_not_as_many(tmp_path):
    rows = frame_of(write(tmp_path / "run.json", launches=2))
    assert rows["operator"].to_list() == [None] * 4
    assert rows["count"].to_list() == [2, 2, 1, 1]


def test_nothing_tells_the_launch_where_several_gpus_were_counted(tmp_path):
    launch = row("cuda_runtime", "cudaLaunchKernel", 420, 5, {"correlation": 4})
    other = counted("gemm", 5060, **{FMA: 1}) | {"pid": 1}
    rows = frame_of(write(tmp_path / "run.json", launch, other))
    assert rows["operator"].to_list() == [None] * 4
    assert rows.filter(kernel="gemm", metric=FMA)["value"].to_list() == [71.0]


def test_a_file_has_so_many_counters(tmp_path):
    many = [counted("odd", 6000 + n, **{f"counter{n}": n, FMA: 1}) for n in range(100)]
    rows = frame_of(write(tmp_path / "run.json", *many))
    assert rows["metric"].n_unique() == 64
    assert rows.filter(kernel="odd", metric=FMA)["value"].to_list() == [100.0]


def test_a_copy_has_no_counters_and_no_shells_of_them(tmp_path):
    sample = {"ph": "C", "cat": "hardware_counters", "name": "sm", "pid": "GPU 0 Counters"}
    path = write(tmp_path / "run.json", {**sample, "tid": 0, "ts": 300, "args": {"": 5}})
    anonymise_trace(path, tmp_path / "copy.json")
    slice_trace(path, tmp_path / "cut.json", (0, 1))
    for copy in ("copy.json", "cut.json"):
        events = json.loads((tmp_path / copy).read_text())["traceEvents"]
        assert {event.get("cat") for event in events} >= {"cpu_op"}
        assert not [e for e in events if e.get("cat", "")[:8] in ("hardware", "cuda_pro")]


def test_the_report_says_that_there_are_no_times_and_what_to_leave_out(tmp_path):
    report = traceprobe.analyze(traceprobe.load(write(tmp_path / "run.json")))
    assert report.verdict.bound == "inconclusive"
    assert "profile again without `profiler_metrics`" in report.verdict.headline
    assert "kernels-counted" in {warning.code for warning in report.quality.warnings}
    (finding,) = [f for f in report.findings if f.id == "gpu-rows-missing"]
    assert finding.status == "fail"
    assert "without `profiler_metrics`" in finding.advice
    page = report.to_html()
    assert "Counters of 3 kernels" in page
    assert "aten::addmm" in page


@pytest.mark.parametrize(
    "damage",
    [
        {"args": {FMA: "many"}},
        {"args": {FMA: float("nan")}},
        {"args": {FMA: True, READ: None}},
        {"args": {FMA: {"deep": [1]}}},
        {"args": {FMA: 10**400}},
        {"args": {FMA: 1e308}},
        {"args": [1]},
        {"args": None},
        {"name": 7},
        {"name": "__missing__"},
        {"ts": "now"},
        {"args": {f"counter{n}": n for n in range(1000)}},
    ],
)
def test_a_damaged_row_costs_no_other(tmp_path, damage):
    event = counted("odd", 5200, **{FMA: 1}) | damage
    rows = frame_of(write(tmp_path / "run.json", event))
    assert {"copy", "gemm"} <= set(rows["kernel"])
    assert len(read_trace(tmp_path / "run.json").kernel_counters) <= 6 + 64


def test_a_trace_with_times_has_no_such_numbers(tmp_path):
    path = tmp_path / "run.json"
    write(path)
    content = json.loads(path.read_text())
    content["traceEvents"] = [
        e for e in content["traceEvents"] if e["cat"] != "cuda_profiler_range"
    ]
    path.write_text(json.dumps(content))
    report = traceprobe.analyze(traceprobe.load(path))
    assert len(report.frame("kernel_counters")) == 0
    assert "kernels-counted" not in {warning.code for warning in report.quality.warnings}

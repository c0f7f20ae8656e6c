"""Nsight Systems ingest: every schema and special row, with the exact columns that come out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from tests.builders import kineto, nsight, truth
from tests.builders.loop import EVERYTHING_PAGEABLE
from tests.builders.nsight_schema import KERNEL, SCHEMAS
from tests.builders.scenario import (
    AUTOGRAD,
    PID,
    Call,
    Range,
    Script,
    colliding_ranks,
)
from tests.written_traces import read_nsight
from traceprobe.ingest.nsight.ids import per_id
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import Call as CallKind
from traceprobe.model.codes import Source
from traceprobe.model.events import Device
from traceprobe.pipeline.inspection import describe


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_to_the_nanosecond(tmp_path, schema, gz):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, schema, gz=gz)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)
    assert (trace.quality.events_lost, trace.quality.events_repaired) == (0, 0)
    assert trace.quality.warnings == {}
    assert trace.origin.format == "nsys"
    assert schema in trace.origin.dialect


@pytest.mark.parametrize("schema", ["3.0.0", "3.20.3", "3.30.1"])
@pytest.mark.parametrize(
    "options",
    [
        {"lazy": False},
        {"enums": False},
        {"registered": True},
        {"hardware": 0xFE},
        {"mislabelled_syncs": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_exporters_differ_and_the_columns_do_not(tmp_path, schema, options):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, schema, **options)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)


def test_the_two_formats_agree_on_every_column_but_the_names_of_copies(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    one = read_trace(kineto.write(scenario, tmp_path / "t.json", operators=False))
    two = read_nsight(scenario.shifted(kineto.EPOCH_NS), tmp_path)
    own = ("name", "role", "grid", "occupancy")  # what each notes in its own way, or not at all
    assert_frame_equal(one.gpu_ops.drop(*own), two.gpu_ops.drop(*own))
    assert_frame_equal(one.host_calls.drop("name"), two.host_calls.drop("name"))
    assert truth.seen_ranges(one) == truth.seen_ranges(two)
    kernels = [[n for n in truth.op_names(t) if not n.startswith("Mem")] for t in (one, two)]
    assert kernels[0] == kernels[1]


def test_kernels_have_their_full_names(tmp_path):
    script = Script().op("kernel", 10, 20, (0, 1), name="void at::native::add<float>(float*, int)")
    trace = read_nsight(script.build(), tmp_path)
    assert truth.op_names(trace) == ["void at::native::add<float>(float*, int)"]


@pytest.mark.parametrize("schema", ["3.0.0", "3.24.0"])
def test_colliding_correlation_ids_link_inside_their_process(tmp_path, schema):
    scenario = colliding_ranks()
    trace = read_nsight(scenario, tmp_path, schema)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)
    assert trace.devices == (Device(1000, 0, "NVIDIA H200"), Device(2000, 0, "NVIDIA H200"))
    assert trace.thread_names == {(1000, 1000): "python3", (2000, 2000): "python3"}


def test_start_end_ranges_marks_and_domains(tmp_path):
    script = Script().domain(2, "NCCL").op("kernel", 1_000, 2_000, (0, 100))
    script.range("push", 100, 900).range("pair", 300, 1_400, form="start", end_thread=1007)
    script.range("overlapping", 200, 800, form="start").range("here", 500, 500, form="mark")
    scenario = script.build()
    trace = read_nsight(scenario, tmp_path)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)
    assert "NCCL" not in [r["name"] for r in truth.seen_ranges(trace, *Source)]


@pytest.mark.parametrize("schema", ["3.0.0", "3.25.0", "3.28.1", "3.30.1"])
def test_nvtxt_ranges_are_read_wherever_the_schema_keeps_them(tmp_path, schema):
    script = Script().op("kernel", 1_000, 2_000, (0, 100)).range("push", 100, 900)
    script.range("old push", 200, 800, form="text_push")
    script.range("old pair", 300, 700, form="text_start")
    scenario = script.build()
    assert truth.seen_ranges(read_nsight(scenario, tmp_path, schema)) == truth.host_ranges(scenario)


def test_an_open_range_runs_to_the_end_of_the_capture(tmp_path):
    script = Script().op("kernel", 1_000, 9_000, (0, 100)).range("closed", 10, 20)
    script.range("open", 50, None).range("pair", 60, None, form="start")
    trace = read_nsight(script.build(), tmp_path)
    assert [(r["name"], r["t0"], r["t1"]) for r in truth.seen_ranges(trace)] == [
        ("closed", 10, 20),
        ("open", 50, 9_000),
        ("pair", 60, 9_000),
    ]
    assert list(trace.quality.warnings) == ["open-ranges"]


def test_library_ranges_are_not_the_users(tmp_path):
    script = Script().op("kernel", 1_000, 2_000, (0, 100)).range("step 0", 0, 3_000)
    script.domain(1, "NCCL").range("ncclAllReduce", 10, 20, domain=1)
    script.range("[DALI][DaliOperator]", 30, 40)
    trace = read_nsight(script.build(), tmp_path, registered=True)
    assert [r["name"] for r in truth.seen_ranges(trace)] == ["step 0"]
    framework = [r["name"] for r in truth.seen_ranges(trace, Source.FRAMEWORK)]
    assert framework == ["ncclAllReduce", "[DALI][DaliOperator]"]


def test_emit_nvtx_ranges_are_operators(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, emit_nvtx=True)
    assert {trace.names[n] for n in trace.host_operators["name"]} <= {
        operator.name for operator in scenario.operators
    }
    assert len(trace.host_operators)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)


@pytest.mark.parametrize("offset", [-(10**9) - 10**6, -(10**15), -1_000_075_500])
def test_negative_times(tmp_path, offset):
    scenario = EVERYTHING_PAGEABLE.scenario().shifted(offset)
    trace = read_nsight(scenario, tmp_path)
    assert min(trace.gpu_ops["t0"].min(), trace.host_calls["t0"].min()) < 0
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)


def test_an_op_at_minus_one_is_an_op(tmp_path):
    """-1 is also what stands for "not recorded"."""
    script = Script().op("kernel", -1, 9, (-50, -1)).op("kernel", 20, 30, (-1, 3))
    script.op("kernel", -9, -1, (-60, -55))
    scenario = script.build()
    assert truth.seen_ops(read_nsight(scenario, tmp_path)) == truth.gpu_ops(scenario)


def test_utc_times_keep_every_nanosecond(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario().shifted(1)
    trace = read_nsight(scenario, tmp_path, utc=True)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, nsight.UTC_NS)
    assert truth.seen_calls(trace) == truth.host_calls(scenario, nsight.UTC_NS)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario, nsight.UTC_NS)


def test_utc_times_survive_a_null_among_them(tmp_path):
    script = Script().op("kernel", 1_001, 2_003, (5, 107)).op("kernel", 3_001, 4_003, (207, 309))
    script.range("open", 11, None).range("closed", 13, 4_001)
    path = nsight.write(script.build(), tmp_path / "run.sqlite", utc=True)
    nsight.edit(path, f"UPDATE {KERNEL} SET correlationId = NULL WHERE rowid = 2")
    trace = read_trace(path)
    assert trace.gpu_ops["t0"].to_list() == [nsight.UTC_NS + 1_001, nsight.UTC_NS + 3_001]
    assert trace.gpu_ops["linked"].to_list() == [True, False]
    ends = {r["name"]: r["t1"] - nsight.UTC_NS for r in truth.seen_ranges(trace)}
    assert ends == {"open": 4_003, "closed": 4_001}


def test_graph_replays_are_gpu_work(tmp_path):
    script = Script().op("graph", 10_000, 90_000, (0, 5_000))
    script.op("kernel", 95_000, 99_000, (6_000, 7_000), graph=True)
    scenario = script.build()
    trace = read_nsight(scenario, tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert trace.host_calls["call"].to_list() == [CallKind.GRAPH_LAUNCH, CallKind.LAUNCH]
    assert list(trace.quality.warnings) == ["graph-level-capture"]


@pytest.mark.parametrize("end", [0, 9_999])
def test_a_graph_replay_that_ends_before_it_starts_is_counted(tmp_path, end):
    script = Script().op("graph", 10_000, 90_000, (0, 5_000))
    script.op("kernel", 95_000, 99_000, (6_000, 7_000))
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    nsight.edit(path, f"UPDATE CUPTI_ACTIVITY_KIND_GRAPH_TRACE SET end = {end}")
    trace = read_trace(path)
    assert trace.gpu_ops["t0"].to_list() == [95_000]
    assert trace.quality.events_lost == 1


@pytest.mark.parametrize("schema", ["3.0.0", "3.7.2"])
def test_graph_launches_without_rows_are_said(tmp_path, schema):
    """Exports before 2024.3 have no table for graph-level rows: the GPU looks idle."""
    script = Script().op("kernel", 95_000, 99_000, (6_000, 7_000))
    script.op("graph", 10_000, 90_000, (0, 5_000))
    trace = read_nsight(script.build(), tmp_path, schema)
    assert len(trace.gpu_ops) == 1
    assert list(trace.quality.warnings) == ["graph-launches-unrecorded"]


def test_kernels_of_one_graph_share_their_launch(tmp_path):
    script = Script().op("kernel", 10_000, 20_000, (0, 1_000), api="cudaGraphLaunch", graph=True)
    script.op(
        "kernel", 20_000, 30_000, (0, 1_000), api="cudaGraphLaunch", graph=True, correlation=1
    )
    scenario = script.build()
    trace = read_nsight(scenario, tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert len(trace.host_calls) == 1


def test_ops_without_calls_and_calls_without_ops_both_stay(tmp_path):
    script = Script().op("kernel", 10_000, 20_000).op("kernel", 30_000, 40_000, (0, 1_000))
    script.call("cudaLaunchKernel", 2_000, 3_000).call("cudaDeviceSynchronize", 4_000, 41_000)
    scenario = script.build()
    trace = read_nsight(scenario, tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert trace.host_calls["recorded"].to_list() == [True, False, False]


def test_the_launching_one_of_two_calls_with_one_id_is_the_launch(tmp_path):
    scenario = Script().op("kernel", 10_000, 20_000, (1_000, 5_000)).build()
    for other in (
        Call("cudaStreamIsCapturing", PID, 500, 600, correlation=1),
        Call("cuKernelGetFunction", PID, 1_100, 1_200, correlation=1),
    ):
        trace = read_nsight(replace(scenario, calls=(other,)), tmp_path)
        assert trace.gpu_ops["launch_t0"].to_list() == [1_000]
        assert len(trace.host_calls) == 2


def test_overheads_of_the_profiler_in_both_tables(tmp_path):
    own = [
        *("CUDA profiling data flush overhead", "CUPTI: Buffer flush", "TLS allocation"),
        *("CUDA profiling data flush on cudaProfilerStop", "CUPTI Instrumentation"),
        *("CUPTI Resource Management", "Chunk Allocation", "CUDA profiling initialization"),
    ]
    stalls = ["Command Buffer Full", "Lazy Function Loading", "Runtime Triggered Module Loading"]
    script = Script().op("kernel", 10, 20, (0, 1))
    for k, name in enumerate(own):
        script.overhead(name, 100 * k, 100 * k + 50)
    for name in stalls:
        script.overhead(name, 2_000, 2_500, driver=True)
    trace = read_nsight(script.build(), tmp_path)
    rows = truth.seen_ranges(trace, Source.PROFILER)
    assert [(r["name"], r["t0"], r["t1"]) for r in rows] == [
        (name, 100 * k, 100 * k + 50) for k, name in enumerate(own)
    ]
    # None of them is a range of the program.
    assert [text for subject, text in describe(trace) if subject == "host calls"] == [
        f"{len(trace.host_calls)}, ranges 0"
    ]


def test_ranges_on_the_autograd_thread_keep_their_thread(tmp_path):
    script = Script().op("kernel", 1_000, 2_000, (0, 100), thread=AUTOGRAD)
    scenario = replace(script.build(), ranges=(Range("hook", AUTOGRAD, 0, 500),))
    trace = read_nsight(scenario, tmp_path)
    assert trace.host_ranges["thread"].to_list() == [AUTOGRAD]
    assert trace.gpu_ops["thread"].to_list() == [AUTOGRAD]


@pytest.mark.parametrize(
    "ids", [[], [5], [7, -1, 7, 3, 3, -1], [1 << 40, -1, 1 << 40], [(1 << 63) - 1, -(1 << 63), 0]]
)
def test_each_id_is_looked_at_once_wherever_ids_lie(ids):
    seen = []
    column = np.array(ids, dtype=np.int64)
    (found,) = per_id(column, lambda i: seen.append(i) or i % 100)
    assert found.tolist() == [i % 100 for i in ids]
    assert seen == sorted(set(ids))

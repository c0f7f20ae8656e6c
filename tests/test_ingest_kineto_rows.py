"""Kineto rows: links, roles, devices, and what is no GPU work."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from tests.builders import kineto, truth
from tests.builders.loop import EVERYTHING, Loop
from tests.builders.scenario import AUTOGRAD, PID, Call, Process, Script, merge
from tests.builders.truth import assert_same_events
from tests.written_traces import read_bytes, read_kineto
from traceprobe.errors import EmptyTrace
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import UNKNOWN, Kind, Role, Source
from traceprobe.model.codes import Call as CallKind
from traceprobe.model.events import Device


def test_the_autograd_thread_makes_backward_work(tmp_path):
    trace = read_kineto(EVERYTHING.scenario(), tmp_path)
    roles = trace.gpu_ops.select("thread", "kind", "role").rows()
    compute = {(thread, role) for thread, kind, role in roles if kind == Kind.KERNEL}
    assert compute == {
        (PID, Role.FORWARD),
        (PID, Role.UNKNOWN),  # the optimizer
        (AUTOGRAD, Role.BACKWARD),
    }


def test_forward_operators_on_the_autograd_thread_are_recomputed(tmp_path):
    script = Script().thread(AUTOGRAD, "pt_autograd_0")
    backward = {"thread": AUTOGRAD, "sequence": 3, "forward_thread": 1}
    script.operator("autograd::engine::evaluate_function: X", 0, 90_000, **backward)
    again = {"thread": AUTOGRAD, "sequence": 9, "forward_thread": 0}
    script.operator("aten::relu", 10_000, 20_000, **again)
    script.op("kernel", 30_000, 40_000, (12_000, 13_000), thread=AUTOGRAD)
    script.op("kernel", 50_000, 60_000, (25_000, 26_000), thread=AUTOGRAD)
    trace = read_kineto(script.build(), tmp_path)
    assert trace.gpu_ops["role"].to_list() == [Role.FORWARD, Role.BACKWARD]


def test_only_kernels_copies_and_memsets_are_gpu_work(tmp_path):
    scenario = EVERYTHING.scenario()
    plain = read_kineto(scenario, tmp_path)
    noisy = read_kineto(
        scenario, tmp_path, sync_rows=True, gpu_annotations=True, stacks=True, memory=True
    )
    assert_same_events(plain, noisy)


def test_marks_of_a_heavy_profiler(tmp_path):
    scenario = EVERYTHING.scenario()
    light = read_kineto(scenario, tmp_path, operators=False)
    heavy = read_kineto(scenario, tmp_path, stacks=True, memory=True, shapes=True)
    assert light.profiled == frozenset()
    assert heavy.profiled == {"operators", "stacks", "memory", "shapes"}


def test_overhead_rows_of_the_profiler_are_told_from_stalls_of_the_driver(tmp_path):
    script = Script().op("kernel", 10, 20, (0, 1))
    script.overhead("Buffer Flush", 100, 300).overhead("CUPTI Instrumentation", 300, 400)
    for name in (
        "Command Buffer Full",
        "Lazy Function Loading",
        "Runtime Triggered Module Loading",
    ):
        script.overhead(name, 500, 600)
    trace = read_kineto(script.build(), tmp_path)
    shift = kineto.EPOCH_NS
    assert [(r["name"], r["t0"], r["t1"]) for r in truth.seen_ranges(trace, Source.PROFILER)] == [
        ("Buffer Flush", shift + 100, shift + 300),
        ("CUPTI Instrumentation", shift + 300, shift + 400),
    ]
    assert [(r["name"], r["t0"], r["t1"]) for r in truth.seen_ranges(trace, Source.QUEUE)] == [
        ("Command Buffer Full", shift + 500, shift + 600)
    ]


def test_overhead_rows_without_a_process_are_those_of_the_only_one(tmp_path):
    script = Script().op("kernel", 10, 20, (0, 1)).overhead("Buffer Flush", 100, 300)
    document = json.loads(kineto.dumps(script.build()))
    (row,) = [event for event in document["traceEvents"] if event.get("cat") == "overhead"]
    row["pid"], row["tid"] = -1, 0
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    trace = read_trace(path)
    noted = trace.host_ranges.filter(pl.col("source") == int(Source.PROFILER))
    assert noted["pid"].to_list() == trace.gpu_ops["pid"].to_list()


def test_without_api_rows_the_external_id_links(tmp_path):
    scenario = Loop(steps=2, forward_ns=90_000, backward_ns=90_000).scenario()
    trace = read_kineto(scenario, tmp_path, calls=False)
    operators = sorted(scenario.operators, key=lambda o: o.t0)
    ops = trace.gpu_ops.sort("t0")
    assert ops["thread"].to_list() == [o.thread for o in operators]
    assert ops["launch_t0"].to_list() == [o.t0 + kineto.EPOCH_NS for o in operators]
    assert not ops["linked"].any()
    assert set(ops.filter(ops["thread"] == AUTOGRAD)["role"]) == {Role.BACKWARD}


def test_a_gpu_op_without_any_link_stays(tmp_path):
    script = Script().op("kernel", 10_000, 20_000).op("kernel", 30_000, 40_000, (1_000, 2_000))
    scenario = script.build()
    trace = read_kineto(scenario, tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
    assert trace.gpu_ops["launch_t0"].to_list() == [UNKNOWN, kineto.EPOCH_NS + 1_000]


def test_an_external_id_that_repeats_the_correlation_is_no_link(tmp_path):
    script = Script().operator("aten::relu", 0, 5_000).op("kernel", 10_000, 20_000)
    data = kineto.dumps(script.build())
    bogus = data.replace(b'"device": 0, "context"', b'"External id": 1, "device": 0, "context"')
    assert bogus != data
    trace = read_bytes(bogus, tmp_path)
    assert trace.gpu_ops["thread"].to_list() == [UNKNOWN]


def test_calls_without_gpu_ops_are_not_recorded(tmp_path):
    script = Script().op("kernel", 10_000, 20_000, (0, 1_000))
    script.call("cudaLaunchKernel", 2_000, 3_000).call("cudaDeviceSynchronize", 4_000, 21_000)
    trace = read_kineto(script.build(), tmp_path)
    assert trace.host_calls["recorded"].to_list() == [True, False, False]
    assert trace.host_calls["blocking"].to_list() == [False, False, True]
    assert trace.host_calls["call"].to_list() == [
        CallKind.LAUNCH,
        CallKind.LAUNCH,
        CallKind.SYNC,
    ]


def test_kernels_of_a_graph_share_their_launch(tmp_path):
    script = Script().op("kernel", 10_000, 20_000, (0, 1_000), api="cudaGraphLaunch", graph=True)
    script.op(
        "kernel", 20_000, 30_000, (0, 1_000), api="cudaGraphLaunch", graph=True, correlation=1
    )
    script.op("kernel", 40_000, 50_000, (2_000, 3_000))
    scenario = script.build()
    for dialect in ("E", "F", "G"):
        trace = read_kineto(scenario, tmp_path, dialect)
        assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
        assert trace.gpu_ops["graph"].to_list() == [True, True, False]
        assert trace.host_calls["call"].to_list() == [CallKind.GRAPH_LAUNCH, CallKind.LAUNCH]


def test_kernels_of_a_graph_are_told_by_their_launch_where_they_have_no_ids_of_it(tmp_path):
    script = Script().op("kernel", 10_000, 20_000, (0, 1_000), api="cudaGraphLaunch")
    script.op("kernel", 20_000, 30_000, (0, 1_000), api="cudaGraphLaunch", correlation=1)
    script.op("kernel", 40_000, 50_000, (2_000, 3_000))
    trace = read_kineto(script.build(), tmp_path, "G")
    assert trace.gpu_ops["graph"].to_list() == [True, True, False]


@pytest.mark.parametrize("dialect", ["E", "G"])
def test_copies_between_gpus_are_communication(tmp_path, dialect):
    script = Script(Process(devices=("NVIDIA H200",) * 2))
    script.op("p2p", 10_000, 20_000, (0, 1_000), bytes=4096).op(
        "d2d", 20_000, 30_000, (2_000, 3_000)
    )
    scenario = script.build()
    trace = read_kineto(scenario, tmp_path, dialect)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
    assert trace.gpu_ops["kind"].to_list() == [Kind.COMM, Kind.D2D]


def test_rocm_rows(tmp_path):
    script = Script(Process(devices=("AMD Instinct MI300X",) * 3))
    place = {"device": 2, "stream": 0}
    script.op("h2d", 10_000, 20_000, (0, 1_000), bytes=616, **place)
    script.op("d2h", 20_000, 30_000, (2_000, 3_000), bytes=4, **place)
    script.op("kernel", 30_000, 40_000, (4_000, 5_000), **place)
    script.op("memset", 40_000, 50_000, (6_000, 7_000), bytes=64, **place)
    scenario = script.build()
    trace = read_kineto(scenario, tmp_path, rocm=True)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
    assert [r["name"] for r in truth.seen_calls(trace)][:2] == ["hipMemcpyAsync"] * 2
    assert trace.host_calls["call"].to_list() == [
        CallKind.COPY,
        CallKind.COPY,
        CallKind.LAUNCH,
        CallKind.MEMSET,
    ]
    assert [(d.pid, d.index, d.name) for d in trace.devices] == [(PID, 2, "AMD Instinct MI300X")]


def test_devices_and_threads_have_their_names(tmp_path):
    trace = read_kineto(EVERYTHING.scenario(), tmp_path)
    assert [(d.pid, d.index, d.name) for d in trace.devices] == [(PID, 0, "NVIDIA H200")]
    assert "pt_autograd_0" in trace.thread_names[PID, AUTOGRAD]


DEVICE = {
    "id": 0,
    "name": "NVIDIA A40",
    "computeMajor": 8,
    "computeMinor": 6,
    "numSms": 84,
    "totalGlobalMem": 47_850_782_720,
    "warpSize": 32,
}


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({}, ("8.6", 84, 47_850_782_720, 32)),
        ({"computeMinor": None}, (None, 84, 47_850_782_720, 32)),
        ({"computeMajor": -8, "numSms": 0}, (None, None, 47_850_782_720, 32)),
        ({"computeMajor": True, "numSms": "84"}, (None, None, 47_850_782_720, 32)),
        ({"totalGlobalMem": 1 << 70, "warpSize": 32.0}, ("8.6", 84, None, None)),
    ],
)
def test_what_a_device_says_of_itself_is_kept_where_it_can_be_true(tmp_path, changed, known):
    whole = json.loads(kineto.dumps(EVERYTHING.scenario()))
    whole["deviceProperties"] = [DEVICE | changed]
    (tmp_path / "run.json").write_text(json.dumps(whole))
    (device,) = read_trace(tmp_path / "run.json").devices
    facts = device.capability, device.multiprocessors, device.memory_bytes, device.warp_size
    assert (device.name, facts) == ("NVIDIA A40", known)


def test_an_annotation_that_never_ended_runs_to_the_end_of_the_capture(tmp_path):
    script = Script().range("step 0", 1_000, None).op("kernel", 10_000, 95_000, (2_000, 3_000))
    trace = read_kineto(script.build(), tmp_path)
    (row,) = truth.seen_ranges(trace)
    assert (row["t0"], row["t1"]) == (kineto.EPOCH_NS + 1_000, kineto.EPOCH_NS + 95_000)
    assert list(trace.quality.warnings) == ["unfinished-events"]


def test_a_correlation_id_beyond_64_bits_costs_the_link_only(tmp_path):
    scenario = Script().op("kernel", 10_000, 20_000, (0, 1_000)).build()
    data = kineto.dumps(scenario).replace(
        b'"correlation": 1,', b'"correlation": 18446744073709551615,'
    )
    trace = read_bytes(data, tmp_path)
    assert len(trace.gpu_ops) == 1
    assert (trace.quality.events_lost, trace.quality.events_repaired) == (0, 0)


def test_a_run_without_a_gpu_is_a_cpu_run(tmp_path):
    script = Script(Process(devices=()))
    for k in range(3):
        at = k * 100_000
        script.range(f"step {k}", at, at + 90_000)
        script.operator("aten::conv2d", at + 1_000, at + 40_000)
        script.operator("aten::convolution", at + 2_000, at + 39_000)
        script.operator("gloo:all_reduce", at + 50_000, at + 60_000)
    trace = read_kineto(script.build(), tmp_path)
    assert trace.devices == (Device(PID, 0, "CPU", "cpu"),)
    assert [(r["kind"], r["t1"] - r["t0"]) for r in truth.seen_ops(trace)] == [
        (Kind.KERNEL, 39_000),
        (Kind.COMM, 10_000),
    ] * 3


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("", "ProfilerActivity.CUDA"),
        (', "WARNING": ["CUPTI initialization failed"]', "CUPTI initialization failed"),
    ],
)
def test_a_trace_without_work_says_why(tmp_path, tail, reason):
    scenario = replace(Script().range("step 0", 0, 9_000).build(), processes=(Process(devices=()),))
    path = kineto.write(scenario, tmp_path / "empty.json", tail=tail)
    with pytest.raises(EmptyTrace, match=reason):
        read_trace(path)


@pytest.mark.parametrize(
    ("name", "on_gpu", "reason"),
    [
        ("aten::addmm", False, None),
        ("aten::conv2d", False, None),
        ("autograd::engine::evaluate_function: AddmmBackward0", False, None),
        ("aten::stack", False, "no step or phase annotations"),
        ("aten::addmm", True, "the machine has a GPU"),
        ("aten::mkldnn_convolution", True, None),  # runs nowhere else
    ],
)
def test_a_network_on_a_cpu_needs_no_annotation(tmp_path, name, on_gpu, reason):
    script = Script() if on_gpu else Script(Process(devices=()))
    for k in range(4):
        script.operator(name, k * 10_000, k * 10_000 + 9_000)
    path = kineto.write(script.build(), tmp_path / "cpu.json")
    if reason is None:
        assert read_trace(path).devices == (Device(PID, 0, "CPU", "cpu"),)
    else:
        with pytest.raises(EmptyTrace, match=reason):
            read_trace(path)


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (["aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mm"], True),
        (["aten::_nnpack_spatial_convolution"], True),
        (["aten::mkldnn_convolution", "aten::addmm", "aten::addmm"], False),
    ],
)
def test_a_run_on_the_cpu_beside_a_gpu_is_told_by_most_of_its_work(tmp_path, names, read):
    """One operator on the CPU may prepare batches for the others."""
    script = Script()
    for k, name in enumerate(names * 4):
        script.operator(name, k * 10_000, k * 10_000 + 9_000)
    path = kineto.write(script.build(), tmp_path / "cpu.json")
    if read:
        assert read_trace(path).devices == (Device(PID, 0, "CPU", "cpu"),)
    else:
        with pytest.raises(EmptyTrace, match="the machine has a GPU"):
            read_trace(path)


def test_a_merged_launch_prefers_the_launching_call(tmp_path):
    scenario = Script().op("kernel", 10_000, 20_000, (1_000, 5_000)).build()
    outer = Call("cudaStreamIsCapturing", PID, 500, 600, correlation=1)
    trace = read_kineto(merge(replace(scenario, calls=(outer,))), tmp_path)
    assert trace.gpu_ops["launch_t0"].to_list() == [kineto.EPOCH_NS + 1_000]

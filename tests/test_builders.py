"""The builders write what they are told: every file is read back with json or sqlite3 alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise

import pytest

from tests.builders import faults, kineto
from tests.builders.loop import LOADER, TWO_COLLECTIVES, Loop, training_loop
from tests.builders.scenario import AUTOGRAD, PID, Process, Script, merge


def sweep(loop):
    """Partition one GPU window by brute force: what runs at each instant of a fine grid."""
    scenario, expected = loop.scenario(), loop.expected()
    (a, b), *_ = expected.windows
    ops = [op for op in scenario.ops if op.t1 > a and op.t0 < b]
    edges = sorted({a, b, *(t for op in ops for t in (op.t0, op.t1) if a < t < b)})
    busy = Counter()
    for start, end in pairwise(edges):
        running = {op.kind for op in ops if op.t0 <= start < op.t1}
        order = ("kernel", "comm", "h2d", "d2h", "memset")
        busy[next((kind for kind in order if kind in running), "idle")] += end - start
    return busy, expected


@pytest.mark.parametrize(
    "loop",
    [
        TWO_COLLECTIVES,
        Loop(forward_ns=100_000),
        Loop(forward_ns=90_000, backward_ns=90_001, optimizer_ns=50_003, launch_gap_ns=3),
        Loop(forward_ns=100_000, h2d_ns=70_000, lag_ns=500_000, loop_gap_ns=0),
        Loop(
            forward_ns=80_000,
            backward_ns=200_000,
            comm_ns=150_000,
            comm_overlap_ns=150_000,
            kernels=(2, 4, 1),
        ),
        Loop(forward_ns=80_000, optimizer_ns=60_000, sync_ns=70_000, tail_ns=9_000),
    ],
)
def test_the_expected_partition_is_what_the_laid_out_ops_cover(loop):
    busy, expected = sweep(loop)
    at = expected.partition_ns
    assert busy["kernel"] == at["forward"] + at["backward"] + at["optimizer"]
    assert busy["comm"] == at["communication"]
    assert (busy["h2d"], busy["d2h"], busy["memset"]) == (at["h2d"], at["d2h"], at["memory"])
    assert busy["idle"] == sum(ns for key, ns in at.items() if key.startswith("idle"))
    assert sum(expected.shares.values()) == pytest.approx(1)


def test_a_loop_in_numbers():
    expected = TWO_COLLECTIVES.expected()
    gaps = 12  # 1 copy, 4 forward, 1 memset, 4 backward, 2 optimizer and 1 copy leave 12 gaps
    assert expected.partition_ns == dict.fromkeys(expected.partition_ns, 0) | {
        "forward": 400_000,
        "backward": 600_000,
        "optimizer": 100_000,
        "communication": 150_000,
        "h2d": 40_000,
        "d2h": 12_000,
        "memory": 20_000,
        "idle_data_wait": 300_000,
        "idle_host": 5_000 + 8_000 + gaps * 10_000,
        "idle_latency": 20_000 + gaps * 20_000,
    }
    assert expected.busy_ns["communication"] == 250_000
    assert (expected.launches, expected.collectives, expected.gpu_ops) == (12, 2, 15)
    assert len(expected.windows) == 4
    assert {b - a for a, b in expected.windows} == {expected.window_ns}


def test_a_loop_that_lags_turns_host_waits_into_latency():
    near = Loop(forward_ns=100_000, data_wait_ns=50_000).expected().partition_ns
    far = Loop(forward_ns=100_000, data_wait_ns=50_000, lag_ns=1_000_000).expected().partition_ns
    assert (near["idle_data_wait"], near["idle_latency"]) == (50_000, 20_000)
    assert (far["idle_data_wait"], far["idle_host"], far["idle_latency"]) == (0, 0, 75_000)


def test_every_launch_of_a_loop_is_inside_its_step_and_calls_of_a_thread_do_not_overlap():
    scenario = TWO_COLLECTIVES.scenario()
    steps = [r for r in scenario.ranges if r.name.startswith("step ")]
    assert [s.name for s in steps] == [f"step {k}" for k in range(5)]
    for number, op in enumerate(scenario.ops):
        step = steps[number // TWO_COLLECTIVES.expected().gpu_ops]
        assert step.t0 <= op.launch.t0
        assert op.launch.t1 <= min(op.t0, step.t1)
    for thread in (PID, AUTOGRAD):
        calls = [c for c in scenario.host_calls() if c.thread == thread]
        assert all(x.t1 <= y.t0 for x, y in pairwise(calls))


def test_backward_is_launched_by_a_thread_without_ranges():
    scenario = TWO_COLLECTIVES.scenario()
    assert {r.thread for r in scenario.ranges} == {PID}
    assert {o.thread for o in scenario.operators if o.forward_thread == 1} == {AUTOGRAD}
    threads = Counter((op.kind, op.launch.thread) for op in scenario.ops)
    assert threads["kernel", AUTOGRAD] == 4 * 5
    assert threads["comm", AUTOGRAD] == 2 * 5


@pytest.mark.parametrize(("wait", "name"), [("loader", LOADER), ("range", "data_loading")])
def test_the_wait_is_inside_the_step_where_a_range_records_it(wait, name):
    scenario, expected = training_loop(3, forward_ns=99_000, data_wait_ns=40_000, wait=wait)
    waits = [r for r in scenario.ranges if r.name == name]
    steps = [r for r in scenario.ranges if r.name.startswith("step ")]
    assert [w.t1 - w.t0 for w in waits] == [40_000] * 3
    assert [w.t0 for w in waits] == [s.t0 for s in steps]
    assert expected.partition_ns["idle_data_wait"] == 40_000


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "no GPU op"),
        ({"forward_ns": 10_000}, "shorter than the calls"),
        ({"forward_ns": 100_000, "comm_ns": 5}, "backward"),
        ({"forward_ns": 100_000, "sync_ns": 5, "lag_ns": 5}, "lag"),
        ({"forward_ns": 100_000, "data_wait_ns": 90_000, "loop_gap_ns": 0}, "does not fit"),
    ],
)
def test_a_loop_refuses_what_its_arithmetic_does_not_cover(parameters, problem):
    with pytest.raises(ValueError, match=problem):
        Loop(**parameters)


def events(data, cat):
    body = json.loads(data)
    rows = body if isinstance(body, list) else body["traceEvents"]
    return [e for e in rows if e.get("cat") == cat]


@pytest.mark.parametrize("dialect", kineto.DIALECTS)
@pytest.mark.parametrize("gz", [False, True])
def test_every_dialect_is_json_with_all_gpu_rows(tmp_path, dialect, gz):
    scenario = TWO_COLLECTIVES.scenario()
    path = kineto.write(scenario, tmp_path / "trace", dialect, gz=gz)
    data = gzip.decompress(path.read_bytes()) if gz else path.read_bytes()
    body = json.loads(data)
    rows = body if dialect == "A" else body["traceEvents"]
    on_gpu = [e for e in rows if e["ph"] == "X" and e["pid"] in (0, "CUDA functions")]
    assert len(on_gpu) == len(scenario.ops)
    assert isinstance(body, list) == (dialect == "A")
    assert ("baseTimeNanoseconds" in body) == (dialect in "EFG")


def test_each_dialect_has_its_marks():
    scenario = TWO_COLLECTIVES.scenario()
    dumped = {d: kineto.dumps(scenario, d) for d in kineto.DIALECTS}
    step = {d: next(e for e in json.loads(dumped[d])["traceEvents"]) for d in "CDEFG"}
    begin = scenario.ranges[0].t0
    assert step["C"]["ts"] == (kineto.EPOCH_NS + begin) // 1000
    assert f"{(kineto.EPOCH_NS + begin) // 1000}.000".encode() in dumped["D"]
    assert step["E"]["ts"] == step["F"]["ts"] == step["G"]["ts"] == begin / 1000
    assert {e["tid"] for e in events(dumped["B"], "Kernel")} == {"stream 7", "stream 20"}
    kernels = [e for e in events(dumped["B"], "Kernel") if "nccl" not in e["name"]]
    assert all("external id" in e["args"] for e in kernels)
    assert all(e["tid"] in ("1000", "1042") for e in events(dumped["B"], "Runtime"))
    assert dumped["E"].count(b"\n") > 4 * dumped["F"].count(b"\n") > dumped["G"].count(b"\n") == 0
    assert {e["name"] for e in events(dumped["G"], "gpu_memcpy")} == {"Memcpy"}
    assert [e["args"]["copy kind"] for e in events(dumped["G"], "gpu_memcpy")][:2] == [
        "HtoD",
        "DtoH",
    ]
    assert not any("External id" in e["args"] for e in events(dumped["G"], "kernel"))
    legacy = json.loads(dumped["A"])
    assert {e["pid"] for e in legacy} == {"CPU functions", "CUDA functions"}
    assert not any("cat" in e for e in legacy if e["ph"] == "X")


def test_integer_dialects_refuse_times_that_they_cannot_write():
    script = Script().op("kernel", 1_001, 2_000, (1_000, 1_500))
    with pytest.raises(ValueError, match="whole microseconds"):
        kineto.dumps(script.build(), "C")


def test_a_kineto_file_holds_one_process():
    two = merge(
        TWO_COLLECTIVES.scenario(), Loop(forward_ns=99_000, process=Process(2000)).scenario()
    )
    with pytest.raises(ValueError, match="one process"):
        kineto.dumps(two)
    assert kineto.dumps(two.only(PID)) == kineto.dumps(TWO_COLLECTIVES.scenario())


def test_kineto_content_options():
    script = Script(Process(rank=3), world_size=8)
    script.range("step 0", 0, 90_000).operator("aten::relu", 1_000, 9_000, sequence=1)
    script.op("kernel", 10_000, 20_000, (2_000, 4_000)).op("p2p", 21_000, 22_000, (5_000, 6_000))
    script.call("cudaDeviceSynchronize", 30_000, 80_000).overhead("Buffer Flush", 1_000, 2_000)
    scenario = script.build()
    data = kineto.dumps(
        scenario, sync_rows=True, gpu_annotations=True, stacks=True, memory=True, shapes=True
    )
    cats = Counter(e.get("cat") for e in json.loads(data)["traceEvents"])
    assert cats["cuda_sync"] == cats["overhead"] == cats["python_function"] == 1
    assert cats["gpu_user_annotation"] == cats["cpu_instant_event"] == cats["cpu_op"] == 1
    assert cats["cuda_runtime"] == 3
    assert json.loads(data)["distributedInfo"]["rank"] == 3
    assert json.loads(data)["with_stack"] == 1
    (relu,) = events(data, "cpu_op")
    (kernel,) = events(data, "kernel")
    assert kernel["args"]["External id"] == relu["args"]["External id"]
    (copy,) = events(data, "gpu_memcpy")
    assert copy["name"] == "Memcpy PtoP (Device -> Device)"
    assert "device" not in copy["args"]
    bare = kineto.dumps(scenario, operators=False, calls=False, flows=False)
    left = {e.get("cat") for e in json.loads(bare)["traceEvents"]}
    assert left == {"user_annotation", "kernel", "gpu_memcpy", "overhead", "Trace", None}


def test_kineto_envelope_options():
    scenario = Script(Process(rank=1)).op("kernel", 0, 9, (0, 1)).build()
    late = json.loads(kineto.dumps(scenario, base_after_events=True, distributed="after"))
    assert list(late)[-4:] == [
        "distributedInfo",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceName",
    ]
    indented = kineto.dumps(scenario, layout="indent", header=(("with_flops", 1),))
    assert json.loads(indented)["with_flops"] == 1
    assert b'\n    {\n      "ph": "X"' in indented


def test_rocm_rows():
    script = Script(Process(devices=("AMD Instinct MI300X",) * 3))
    script.op("h2d", 10, 20, (0, 1), bytes=616, device=2, stream=0)
    data = kineto.dumps(script.build(), rocm=True)
    (copy,) = events(data, "gpu_memcpy")
    assert copy["pid"] == 2
    assert copy["args"]["bytes"] == "616"
    assert copy["name"] == "Memcpy HtoD (Host -> Device)"
    assert events(data, "cuda_runtime")[0]["name"] == "hipMemcpyAsync"


def test_shifting_moves_every_row_and_nothing_else():
    scenario = TWO_COLLECTIVES.scenario()
    moved = scenario.shifted(-5_000_000_000)
    assert moved.ops[3].launch.t0 == scenario.ops[3].launch.t0 - 5_000_000_000
    assert moved.shifted(5_000_000_000) == scenario


@pytest.mark.parametrize("fault", faults.KINETO, ids=str)
def test_kineto_faults_change_what_they_say(fault):
    data = kineto.dumps(TWO_COLLECTIVES.scenario(), "E")
    damaged, affected = fault.apply(data)
    assert damaged != data
    total = len(faults.spans(data))
    assert 0 <= affected <= total
    if fault.outcome == "repaired" and not fault.name.startswith("python-"):
        with pytest.raises(ValueError, match=r"."):
            json.loads(damaged)
    if fault.name.startswith("cut-"):
        whole = [b for _, b in faults.spans(data) if b <= len(damaged)]
        assert len(whole) == total - affected


def test_spans_are_the_events():
    for dialect in kineto.DIALECTS:
        data = kineto.dumps(TWO_COLLECTIVES.scenario(), dialect)
        body = json.loads(data)
        rows = body if dialect == "A" else body["traceEvents"]
        assert [json.loads(data[a:b]) for a, b in faults.spans(data)] == rows


def test_truncated_gzip_says_how_many_events_are_gone():
    data = kineto.dumps(TWO_COLLECTIVES.scenario(), "E")
    packed, affected = faults.truncated_gzip(data)
    with pytest.raises(EOFError):
        gzip.decompress(packed)
    assert 0 < affected < len(faults.spans(data))
    assert faults.truncated_gzip(data, 1.0)[1] == 0

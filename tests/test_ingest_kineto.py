"""Kineto ingest: every dialect and special row, with the exact columns that must come out."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import kineto, truth
from tests.builders.loop import EVERYTHING, LOADER, Loop
from tests.builders.scenario import PID, Process, Script
from tests.builders.truth import assert_same_events
from tests.written_traces import read_bytes, read_kineto
from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest.kineto import chunks, shares
from traceprobe.ingest.plausibility import MOST_BYTES
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.annotation import VIEW
from traceprobe.model.codes import UNKNOWN, Source
from traceprobe.model.events import GPU_OPS, HOST_CALLS, HOST_RANGES

LOOP = replace(
    EVERYTHING,
    wait="loader",
    step_name="ProfilerStep#{}",
    process=Process(rank=1),
    world_size=4,
)
STRICT = [d for d in kineto.DIALECTS if d not in "AD"]


def columns(trace):
    return trace.gpu_ops, trace.host_calls, trace.host_ranges


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("dialect", STRICT)
def test_gpu_ops_and_calls_of_every_dialect_to_the_nanosecond(tmp_path, dialect, gz):
    scenario, shift = LOOP.scenario(), kineto.SHIFT_NS[dialect]
    trace = read_kineto(scenario, tmp_path, dialect, gz=gz)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, shift)
    assert truth.seen_calls(trace) == truth.host_calls(scenario, shift)
    assert (trace.quality.events_lost, trace.quality.events_repaired) == (0, 0)
    assert trace.quality.warnings == {}
    assert trace.origin.format == "kineto"
    assert trace.origin.dialect.startswith(dialect)


@pytest.mark.parametrize("dialect", STRICT)
def test_ranges_of_every_dialect_by_source(tmp_path, dialect):
    scenario, shift = LOOP.scenario(), kineto.SHIFT_NS[dialect]
    trace = read_kineto(scenario, tmp_path, dialect)
    framework = [r["name"] for r in truth.seen_ranges(trace, Source.FRAMEWORK)]
    assert sorted(framework) == [f"ProfilerStep#{k}" for k in range(3)] + [LOADER] * 3
    user = replace(
        scenario,
        ranges=tuple(r for r in scenario.ranges if r.name in ("h2d", "forward", "optimizer")),
    )
    assert truth.seen_ranges(trace) == truth.host_ranges(user, shift)


def test_dialect_d_is_exact_to_a_quarter_of_a_microsecond(tmp_path):
    scenario, shift = LOOP.scenario().shifted(400), kineto.SHIFT_NS["D"]
    trace = read_kineto(scenario, tmp_path, "D")
    seen, wanted = truth.seen_ops(trace), truth.gpu_ops(scenario, shift)
    times = ("t0", "t1", "launch_t0", "launch_t1")
    for row, want in zip(seen, wanted, strict=True):
        assert all(abs(row[t] - want[t]) <= 250 for t in times)
        assert {k: v for k, v in row.items() if k not in times} == {
            k: v for k, v in want.items() if k not in times
        }
    assert trace.origin.dialect.startswith("D")


@pytest.mark.parametrize("dialect", STRICT)
def test_pageable_copies_are_known_in_every_dialect(tmp_path, dialect):
    script = Script().op("h2d", 10_000, 20_000, (0, 1_000), bytes=64, pageable=True)
    script.op("h2d", 20_000, 30_000, (2_000, 3_000), bytes=64)
    script.op("d2h", 30_000, 40_000, (4_000, 5_000), bytes=64, pageable=True)
    trace = read_kineto(script.build(), tmp_path, dialect)
    assert trace.gpu_ops["pageable"].to_list() == [True, False, True]


def test_dialect_a_is_named(tmp_path):
    assert read_kineto(LOOP.scenario(), tmp_path, "A").origin.dialect.startswith("A")


def test_dialect_a_keeps_times_and_links_by_arrow(tmp_path):
    scenario = LOOP.scenario()
    trace = read_kineto(scenario, tmp_path, "A")
    functions = (*scenario.operators, *scenario.ranges)
    kept = ("t0", "t1", "kind", "device")
    for seen, want in zip(truth.seen_ops(trace), truth.gpu_ops(scenario), strict=True):
        assert {k: seen[k] for k in kept} == {k: want[k] for k in kept}
        around = [
            f.t0
            for f in functions
            if f.thread == want["thread"] and f.t0 <= want["launch_t0"] <= f.t1
        ]
        assert seen["linked"] == bool(around)
        assert seen["launch_t0"] == max(around, default=UNKNOWN)
        assert seen["thread"] == (want["thread"] if around else UNKNOWN)
    names = [r["name"] for r in truth.seen_ranges(trace, Source.USER, Source.FRAMEWORK)]
    assert names.count(LOADER) == 3


def test_dialect_a_has_no_invented_process_id(tmp_path):
    trace = read_kineto(LOOP.scenario(), tmp_path, "A")
    (device,) = trace.devices
    assert device.pid >= 0
    assert set(trace.gpu_ops["pid"]) == set(trace.host_ranges["pid"]) == {device.pid}


@pytest.mark.parametrize("dialect", ["A", "B"])
def test_user_annotations_survive_where_they_share_a_category_with_operators(tmp_path, dialect):
    script = Script().range("step 0", 0, 90_000).range("step 1", 90_000, 180_000)
    script.operator("aten::relu", 1_000, 9_000).op("kernel", 10_000, 20_000, (2_000, 4_000))
    data = kineto.dumps(script.build(), dialect).replace(b'"cat": "User"', b'"cat": "Operator"')
    trace = read_bytes(data, tmp_path)
    assert [r["name"] for r in truth.seen_ranges(trace)] == ["step 0", "step 1"]


@pytest.mark.parametrize("layout", ["raw", "lines", "single", "indent"])
@pytest.mark.parametrize("chunk", [64, 512, 5_000, 1 << 20])
def test_chunk_borders_change_nothing(tmp_path, monkeypatch, layout, chunk):
    whole = read_kineto(LOOP.scenario(), tmp_path)
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    cut = read_kineto(LOOP.scenario(), tmp_path, layout=layout)
    assert_same_events(cut, whole)
    assert cut.quality == whole.quality


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h200_unet_w1.json.gz", "profile_wide_mlp.rank0.json.gz"])
def test_processes_that_help_change_nothing(samples, monkeypatch, name):
    alone = read_trace(samples / name)
    monkeypatch.setattr(shares, "SHARE", 10_000)
    monkeypatch.setattr(chunks, "CHUNK", 50_000)
    shared = read_trace(samples / name, jobs=3)
    assert_same_events(shared, alone)
    assert shared.quality == alone.quality


def test_an_id_that_is_a_text_is_one_thread_in_every_chunk(tmp_path, monkeypatch):
    data = kineto.dumps(LOOP.scenario()).replace(b'"tid": 1042,', b'"tid": "worker one",')
    numbers = read_kineto(LOOP.scenario(), tmp_path)
    monkeypatch.setattr(chunks, "CHUNK", 300)
    texts = read_bytes(data, tmp_path)
    (named,) = set(texts.host_calls["thread"]) - set(numbers.host_calls["thread"])
    assert named < UNKNOWN
    for rows in ("host_calls", "gpu_ops"):
        found, expected = (getattr(trace, rows)["thread"] for trace in (texts, numbers))
        assert found.replace(named, 1042).to_list() == expected.to_list()


@pytest.mark.parametrize("chunk", [256, 700, 1 << 20])
def test_numbers_of_any_width_survive_beside_each_other(tmp_path, monkeypatch, chunk):
    script = Script()
    for k, bits in enumerate((6, 8, 14, 16, 30, 33, 61, 3)):
        at = k * 10_000
        moved = min(1 << bits, MOST_BYTES)
        script.op("h2d", at + 5_000, at + 6_000, (at, at + 1_000), stream=k, bytes=moved)
        script.op("kernel", at + 7_000, at + 8_000, (at + 2_000, at + 3_000), stream=1 << bits)
    scenario = script.build()
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    trace = read_kineto(scenario, tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
    assert truth.seen_calls(trace) == truth.host_calls(scenario, kineto.EPOCH_NS)


def test_times_are_exact_at_the_end_of_a_base_interval(tmp_path):
    late = 7_889_237 * 10**9 + 999_999_001
    scenario = Script().op("kernel", late, late + 1, (late - 3, late - 2)).build()
    assert truth.seen_ops(read_kineto(scenario, tmp_path)) == truth.gpu_ops(
        scenario, kineto.EPOCH_NS
    )


@pytest.mark.parametrize("dialect", ["E", "F", "G"])
def test_a_base_time_behind_the_events_counts(tmp_path, dialect):
    early = read_kineto(LOOP.scenario(), tmp_path, dialect)
    late = read_kineto(LOOP.scenario(), tmp_path, dialect, base_after_events=True)
    assert_same_events(early, late)


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_rank_is_read_before_and_behind_the_events(tmp_path, where):
    trace = read_kineto(LOOP.scenario(), tmp_path, distributed=where)
    assert trace.rank_of == {PID: 1}
    assert trace.metadata["world_size"] == 4


def test_no_rank_is_invented(tmp_path):
    trace = read_kineto(LOOP.scenario(), tmp_path, distributed="absent")
    assert trace.rank_of == {}
    assert "world_size" not in trace.metadata


@settings(max_examples=15, deadline=None)
@given(order=st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(tmp_path_factory, order):
    folder = tmp_path_factory.mktemp("order")
    data = kineto.dumps(Loop(steps=2, forward_ns=90_000, data_wait_ns=7_000).scenario())
    body = json.loads(data)
    order.shuffle(body["traceEvents"])
    assert_same_events(
        read_bytes(data, folder), read_bytes(json.dumps(body).encode(), folder, "shuffled.json")
    )


def test_several_processes_in_one_file_are_warned_about(tmp_path):
    short = {"steps": 2, "forward_ns": 90_000}
    one, two = (
        json.loads(kineto.dumps(Loop(**short, process=Process(p), start_ns=10**9 + p).scenario()))
        for p in (1000, 2000)
    )
    one["traceEvents"] += two["traceEvents"]
    trace = read_bytes(json.dumps(one).encode(), tmp_path)
    assert "several-processes" in trace.quality.warnings
    assert len(trace.gpu_ops) == 16
    assert set(trace.host_calls["pid"]) == {1000, 2000}


def test_a_bare_list_of_categorised_events_is_read(tmp_path):
    scenario = LOOP.scenario()
    rows = json.loads(kineto.dumps(scenario))["traceEvents"]
    trace = read_bytes(json.dumps(rows).encode(), tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)


def test_content_decides_and_not_the_suffix(tmp_path):
    data = kineto.dumps(LOOP.scenario())
    plain = read_bytes(data, tmp_path)
    for name, content in {
        "trace.sqlite": data,
        "trace": b"\xef\xbb\xbf\n" + data,
        "trace.json": gzip.compress(data),
        "members.gz": gzip.compress(data[:9_000]) + gzip.compress(data[9_000:]),
    }.items():
        assert_same_events(read_bytes(content, tmp_path, name), plain)


def test_provenance_and_nothing_private(tmp_path):
    header = (("host_name", "node17"), ("username", "someone"), ("PT_PROFILER_JOB_NAME", "x"))
    path = kineto.write(LOOP.scenario(), tmp_path / "run.json", header=header)
    trace = read_trace(path)
    assert trace.origin.name == "run.json"
    assert trace.origin.bytes == path.stat().st_size
    assert len(trace.origin.sha256) == 64
    text = f"{trace.origin} {trace.metadata} {trace.thread_names} {trace.names}"
    assert not {"node17", "someone", str(tmp_path)} & set(text.split("'"))


@pytest.mark.parametrize("text", [b'{"schemaVersion": 1}', b'{"traceEvents": []}', b"[]", b"{}"])
def test_json_without_events_is_no_trace(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_bytes(text)
    with pytest.raises(DamagedInput, match="traceEvents"):
        read_trace(path)


def test_frames_have_the_declared_schema(tmp_path):
    trace = read_kineto(LOOP.scenario(), tmp_path)
    lonely = read_kineto(Script().op("kernel", 10, 20).build(), tmp_path)
    for frames in (columns(trace), columns(lonely)):
        for found, declared in zip(frames, (GPU_OPS, HOST_CALLS, HOST_RANGES), strict=True):
            assert dict(found.schema) == dict(declared)


def trace_of(tmp_path, events):
    """A trace of calls, with the operation of a device that the first of them launched."""
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "dur": 1}
    calls = [{**call, "ts": 9 * n, **event} for n, event in enumerate(events)]
    calls[0] |= {"name": "cudaLaunchKernel", "args": {"correlation": 1}}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1}
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1}
    return read_bytes(json.dumps({"traceEvents": [*calls, kernel]}).encode(), tmp_path)


@pytest.mark.parametrize("names", [126, 127, 128, 129, 32_767, 32_768, 32_769])
def test_a_text_is_no_thread_with_a_number(tmp_path, names):
    numbers = (127, -128, 32_767, -32_768)
    events = [{"name": f"call {n}", "tid": numbers[n % len(numbers)]} for n in range(names)]
    trace = trace_of(tmp_path, [*events, {"name": "one more", "tid": "main"}])
    threads = trace.host_calls["thread"].to_list()
    assert [*map(threads.count, numbers)] == [len(range(n, names, 4)) for n in range(4)]
    assert len(set(threads)) == len(numbers) + 1


def test_a_small_negative_id_beside_a_text_is_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 500)
    events = [{"name": f"call {n % 9}", "tid": -7 if n % 10 else "worker"} for n in range(200)]
    threads = trace_of(tmp_path, events).host_calls["thread"].to_list()
    assert threads.count(-7) == 180
    assert len(set(threads)) == 2


def test_a_copy_for_viewers_that_does_not_say_of_what_is_refused(tmp_path):
    view = {"ph": "M", "cat": VIEW, "name": "", "pid": 0, "tid": 0, "ts": 0}
    with pytest.raises(UnsupportedInput, match="traceprobe annotate"):
        trace_of(tmp_path, [{"name": "a", "tid": 1}, view])

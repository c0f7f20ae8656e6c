"""Chrome traces that contradict themselves: what is set aside, what is said, what is still read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import traceprobe
from tests.builders import kineto, nsight, truth
from tests.builders.loop import EVERYTHING, Loop
from tests.builders.scenario import Message, Process, Script, merge
from tests.builders.truth import assert_same_events
from tests.written_traces import read_bytes, read_kineto
from traceprobe.errors import UsageError
from traceprobe.ingest.kineto import chunks
from traceprobe.ingest.plausibility import LEAST_OVERRUN_NS
from traceprobe.ingest.read_trace import read_trace
from traceprobe.ingest.untrusted_values import NAME_LENGTH
from traceprobe.model.codes import UNKNOWN, Source

US = 1_000
MS = 1_000_000


def kernels(script, count=6, length=10 * US, **columns):
    """Short kernels one after the other, so that a long one has a successor."""
    for k in range(count):
        at = 100 * US * (k + 1)
        script.op("kernel", at, at + length, (at - 20 * US, at - 10 * US), **columns)
    return script


def overrun(script, by, at=150 * US, following=200 * US, **columns):
    """A kernel that ends so long after the next one of its stream began."""
    return script.op("kernel", at, following + by, (at - 30 * US, at - 25 * US), **columns)


def write(form, scenario, folder):
    if form == "kineto":
        return kineto.write(scenario, folder / "trace.json")
    return nsight.write(scenario, folder / "run.sqlite")


FORMS = pytest.mark.parametrize("form", ["kineto", "nsight"])


@FORMS
def test_a_kernel_that_overruns_the_next_by_far_is_set_aside_and_counted(tmp_path, form):
    script = kernels(Script())
    whole = read_trace(write(form, script.build(), tmp_path))
    trace = read_trace(write(form, overrun(script, 2_000 * MS).build(), tmp_path))
    assert trace.gpu_ops["t1"].to_list() == whole.gpu_ops["t1"].to_list()
    assert trace.quality.damage == {"impossible-durations": 1}
    assert "2,000 ms" in trace.quality.warnings["impossible-durations"]
    assert trace.host_calls["recorded"].all()  # its launch has a row, however wrong


@FORMS
@pytest.mark.parametrize(("by", "kept"), [(LEAST_OVERRUN_NS, True), (LEAST_OVERRUN_NS + US, False)])
def test_a_millisecond_of_overlap_is_allowed(tmp_path, form, by, kept):
    trace = read_trace(write(form, overrun(kernels(Script()), by).build(), tmp_path))
    assert (len(trace.gpu_ops) == 7) is kept


@pytest.mark.parametrize(("by", "kept"), [(50 * 40 * US, True), (50 * 40 * US + US, False)])
def test_fifty_median_kernels_of_overlap_are_allowed(tmp_path, by, kept):
    script = overrun(kernels(Script(), length=40 * US), by, at=145 * US)
    trace = read_kineto(script.build(), tmp_path)
    assert (len(trace.gpu_ops) == 7) is kept


@FORMS
@pytest.mark.parametrize(
    "columns",
    [{"stream": 99}, {"graph": True}, {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"}],
    ids=["another stream", "a graph", "a collective"],
)
def test_what_may_overlap_is_kept(tmp_path, form, columns):
    trace = read_trace(
        write(form, overrun(kernels(Script()), 90 * MS, **columns).build(), tmp_path)
    )
    assert len(trace.gpu_ops) == 7
    assert trace.quality.damage == {}


def test_the_report_counts_what_was_set_aside(tmp_path):
    report = traceprobe.analyze(
        read_kineto(overrun(kernels(Script(), 200), 2_000 * MS).build(), tmp_path)
    )
    assert report.quality.damage == {"impossible-durations": 1}
    assert "impossible-durations" in [w.code for w in report.quality.warnings]
    assert sum(r.summary.window_ns for r in report.ranks) < 100 * MS
    plain = traceprobe.analyze(read_kineto(kernels(Script(), 200).build(), tmp_path))
    assert "damage" not in json.loads(plain.to_json())["quality"]


@FORMS
def test_work_without_a_duration_is_counted_and_stays(tmp_path, form):
    script = Script().op("kernel", 100, 100, (1, 2)).op("kernel", 200, 300, (3, 4))
    trace = read_trace(write(form, script.build(), tmp_path))
    assert len(trace.gpu_ops) == 2
    assert trace.quality.damage == {"zero-durations": 1}


def test_work_below_the_resolution_of_a_file_is_no_damage(tmp_path):
    script = Script()
    for k in range(9):
        length = 0 if k % 3 == 1 else 2 * US
        script.op("kernel", k * MS + 10 * US, k * MS + 10 * US + length, (k * MS, k * MS + US))
    quality = read_trace(write("kineto", script.build(), tmp_path)).quality
    assert quality.damage == {}
    assert quality.warnings["rounded-durations"].startswith("3 GPU ops of 9 took less than 1 µs")
    assert "less than 3.00 µs of their work" in quality.warnings["rounded-durations"]


@FORMS
@pytest.mark.parametrize(("early", "counted"), [(US, 0), (US + 1, 1), (5 * MS, 1)])
def test_a_kernel_before_its_launch_is_counted_with_the_skew(tmp_path, form, early, counted):
    at = 10 * MS
    script = Script().op("kernel", at, at + 500, (at + early, at + early + 100))
    script.op("kernel", 30 * MS, 31 * MS, (29 * MS, 29 * MS + 5))
    trace = read_trace(write(form, script.build(), tmp_path))
    assert len(trace.gpu_ops) == 2
    assert trace.quality.damage.get("starts-before-launch", 0) == counted
    if counted:
        assert f"by up to {early / US:.0f} µs" in trace.quality.warnings["starts-before-launch"]


def test_correlation_0_is_no_link(tmp_path):
    script = Script().op("kernel", 10 * US, 20 * US, correlation=0).op("kernel", 30, 40, (1, 2))
    data = json.loads(kineto.dumps(script.build()))
    call = next(e for e in data["traceEvents"] if e.get("cat") == "cuda_runtime")
    data["traceEvents"].append(call | {"args": {"correlation": 0}})
    trace = read_bytes(json.dumps(data).encode(), tmp_path)
    assert trace.gpu_ops.sort("t0")["linked"].to_list() == [True, False]


NOTED = Message(ranks=(0, 1))


def test_a_key_that_is_there_twice_is_counted(tmp_path):
    """As the exporter in Python writes them: the notes of a collective over those of its kernel."""
    script = Script().op("comm", 10 * US, 20 * US, (1, 2), message=NOTED)
    script.op("comm", 30 * US, 40 * US, (25 * US, 26 * US), message=NOTED)
    data = kineto.dumps(script.build(), "F")
    assert read_bytes(data, tmp_path).quality.damage == {}
    at = data.index(b'"Group size"')
    twice = data[:at] + b'"Group size":7,' + data[at:]
    trace = read_bytes(twice, tmp_path)
    assert trace.quality.damage == {"duplicate-keys": 1}
    assert trace.gpu_ops["group_size"].to_list() == [2, 2]


@pytest.mark.parametrize("chunk", [400, 600, 1 << 20])
def test_keys_that_are_there_twice_are_counted_in_every_chunk(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    script = Script()
    for n in range(10):
        at = n * 100 * US
        script.op("comm", at + 10 * US, at + 20 * US, (at, at + US), message=NOTED)
    data = kineto.dumps(script.build(), "F")
    twice = data.replace(b'"Group size"', b'"Group size":7,"Group size"')
    other = rb'\1{"name":"x","ph":"i","ts":1.0,"pid":0,"tid":0},{"ph":"X"'
    mixed = re.sub(rb'(,\s*)\{"ph":"X"', other, twice)
    assert mixed != twice
    assert read_bytes(mixed, tmp_path).quality.damage == {"duplicate-keys": 10}


def test_a_key_that_is_there_twice_beside_other_damage_is_counted(tmp_path):
    script = Script().op("kernel", 10, 20, (1, 2)).op("kernel", 30, 40, (25, 26))
    data = kineto.dumps(script.build())
    data = data.replace(b'"correlation": 1,', b'"correlation": 9, "correlation": 1, "x": nan,')
    assert b"nan" in data
    data = data.replace(b'"correlation": 2,', b'"correlation": 9, "correlation": 2,')
    trace = read_bytes(data, tmp_path)
    assert trace.gpu_ops["linked"].all()
    assert trace.quality.damage["duplicate-keys"] >= 1


@pytest.mark.parametrize("where", ["head", "both"])
def test_a_property_that_is_there_twice_is_said(tmp_path, where):
    data = kineto.dumps(Script().op("kernel", 10, 20, (1, 2)).build())
    assert "duplicate-metadata" not in read_bytes(data, tmp_path).quality.warnings
    twice = data.replace(b'"schemaVersion": 1,', b'"schemaVersion": 0, "schemaVersion": 1,')
    if where == "both":
        twice = data.replace(b'"traceName"', b'"schemaVersion": 1, "traceName"')
    assert twice != data
    assert list(read_bytes(twice, tmp_path).quality.warnings) == ["duplicate-metadata"]


def two_ranks(devices=(0, 1)):
    """Two ranks whose correlation ids collide, in one list as tools merge them."""
    parts = []
    for rank, device in enumerate(devices):
        script = Script(Process(1_000 * (rank + 1), devices=("H200",) * 2))
        for k in range(4 + rank):
            at = 100 * US * (k + 1) + rank * 37 * US
            script.op("kernel", at, at + 30 * US, (at - 20 * US, at - 10 * US), device=device)
        parts.append(script.build())
    return parts


def merged(parts):
    rows = [json.loads(kineto.dumps(part)) for part in parts]
    return rows[0] | {"traceEvents": [e for row in rows for e in row["traceEvents"]]}


def test_ranks_merged_into_one_file_keep_their_own_launches(tmp_path):
    parts = two_ranks()
    trace = read_bytes(json.dumps(merged(parts)).encode(), tmp_path)
    both = merge(*parts)
    assert truth.seen_ops(trace) == truth.gpu_ops(both, kineto.EPOCH_NS)
    assert {(d.pid, d.index) for d in trace.devices} == {(1000, 0), (2000, 1)}
    assert list(trace.quality.warnings) == ["several-processes"]


def test_ranks_whose_devices_collide_lose_no_work(tmp_path):
    parts = two_ranks(devices=(0, 0))
    trace = read_bytes(json.dumps(merged(parts)).encode(), tmp_path)
    assert len(trace.gpu_ops) == 9
    assert "several-processes" in trace.quality.warnings


def notes(pid, rank, group="0", members="[0, 1]"):
    """The row of a collective's notes, as PyTorch writes it."""
    noted = {"Rank": rank, "Group size": 2, "Process Group Name": group, "dtype": "Float"}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "record_param_comms",
        "pid": pid,
        "tid": pid,
        "ts": 5.0,
        "dur": 1.0,
        "args": noted | {"Process Group Ranks": members, "Collective name": "allreduce"},
    }


def of_rank(rank=None, *rows, **top):
    scenario = Script(Process(1000, rank=rank), world_size=2).op("kernel", 10, 20, (1, 2)).build()
    body = json.loads(kineto.dumps(scenario))
    body["traceEvents"] += rows
    return json.dumps(body | top).encode()


@pytest.mark.parametrize(
    ("make", "rank"),
    [
        (partial(of_rank, 3), 3),
        (partial(of_rank, 3, notes(1000, 1)), 3),
        (partial(of_rank, None, notes(1000, 1)), 1),
        (partial(of_rank, None, notes(1000, "1")), 1),
        (partial(of_rank, None, notes(1000, 1), distributedInfo={}), 1),
        (partial(of_rank, None, notes(1000, 1), distributedInfo={"rank": "none"}), 1),
        (partial(of_rank, None, notes(1000, 1), distributedInfo=[]), 1),
        (partial(of_rank, None, notes(1000, 1, group="5")), 1),
        (partial(of_rank, None, notes(1000, 1, group="5", members="[2, 3]")), None),
        (partial(of_rank, None, notes(1000, 1), notes(1000, 0)), None),
        (partial(of_rank, None, notes(1000, -1)), None),
        (of_rank, None),
        (partial(of_rank, None, distributedInfo={}), None),
    ],
)
def test_the_rank_is_that_of_the_file_else_that_of_its_collectives(tmp_path, make, rank):
    assert read_bytes(make(), tmp_path).rank_of == ({} if rank is None else {1000: rank})


def test_the_rank_is_else_that_of_the_name_else_of_the_place(tmp_path):
    names = ["run.rank5.json", "other.json", "run.rank2.json"]
    traces = [read_bytes(of_rank(file=name), tmp_path, name) for name in names]
    assert [r.rank for r in traceprobe.analyze(traces).ranks] == [5, 0, 2]
    traces[1] = read_bytes(of_rank(None, notes(1000, 7)), tmp_path, "other.json")
    assert [r.rank for r in traceprobe.analyze(traces).ranks] == [5, 7, 2]


def test_where_all_files_claim_one_rank_their_names_decide(tmp_path):
    names = ["run.rank1.json", "run.rank0.json"]
    traces = [read_bytes(of_rank(0, file=name), tmp_path, name) for name in names]
    report = traceprobe.analyze(traces)
    assert [r.rank for r in report.ranks] == [1, 0]
    assert report.quality.damage == {"ranks-contradicted": 2}
    honest = read_bytes(of_rank(1), tmp_path, "run.rank9.json")
    with pytest.raises(UsageError, match="both say that they are rank 0"):
        traceprobe.analyze([*traces, honest])


def test_ranks_in_one_file_are_told_by_their_collectives(tmp_path):
    body = merged(two_ranks())
    body["traceEvents"] += [notes(1000, 4), notes(2000, 5)]
    assert read_bytes(json.dumps(body).encode(), tmp_path).rank_of == {1000: 4, 2000: 5}


def test_names_of_whole_programs_are_cut(tmp_path):
    name = "torch_dynamo_resume_in_" + "x" * 1_000_000
    script = Script().op("kernel", 10, 20, (1, 2), name=name).op("kernel", 30, 40, (25, 26))
    trace = read_kineto(script.build(), tmp_path)
    assert max(map(len, trace.names)) == NAME_LENGTH
    assert trace.names[trace.gpu_ops["name"][0]] == name[:NAME_LENGTH]


def test_names_that_the_profiler_made_unknown_are_read(tmp_path):
    """Newer writers replace a name that is not ASCII by this word."""
    scenario = EVERYTHING.scenario()
    ops = tuple(replace(op, name="unknown") for op in scenario.ops)
    trace = read_kineto(replace(scenario, ops=ops), tmp_path)
    assert len(trace.gpu_ops) == len(ops)


def test_rows_that_describe_nothing_but_the_view_may_be_missing(tmp_path):
    scenario = Loop(steps=3, forward_ns=90_000).scenario()
    body = json.loads(kineto.dumps(scenario))
    rows = [e for e in body["traceEvents"] if e["ph"] == "X" and e.get("cat") != "Trace"]
    assert len(rows) < len(body["traceEvents"])
    bare = read_bytes(json.dumps({"traceEvents": rows}).encode(), tmp_path)
    assert truth.seen_ops(bare) == truth.gpu_ops(scenario)


def test_a_record_window_end_far_away_moves_nothing(tmp_path):
    """It lies days behind the events in some files."""
    scenario = Loop(steps=3, forward_ns=90_000).scenario()
    body = json.loads(kineto.dumps(scenario))
    end = next(e for e in body["traceEvents"] if e["name"] == "Record Window End")
    plain = read_bytes(json.dumps(body).encode(), tmp_path)
    end["ts"] += 2 * 86_400e6
    assert_same_events(read_bytes(json.dumps(body).encode(), tmp_path), plain)


def test_ranges_that_overlap_each_other_in_part_are_read_as_they_are(tmp_path):
    script = Script().op("kernel", 10, 20, (1, 2))
    script.range("ProfilerStep#1", 0, 100).range("forward", 50, 150).range(
        "ProfilerStep#2", 90, 200
    )
    trace = read_kineto(script.build(), tmp_path, stacks=True)
    times = [(r["t0"] - kineto.EPOCH_NS, r["t1"] - kineto.EPOCH_NS) for r in all_ranges(trace)]
    assert sorted(times) == [(0, 100), (50, 150), (90, 200)]


def all_ranges(trace):
    return truth.seen_ranges(trace, Source.USER, Source.FRAMEWORK)


def test_a_file_whose_host_rows_are_all_damaged_keeps_its_gpu_work(tmp_path):
    body = json.loads(kineto.dumps(Script().op("kernel", 10, 20, (1, 2)).build()))
    for event in body["traceEvents"]:
        if event.get("cat") == "cuda_runtime":
            del event["dur"]
    trace = read_bytes(json.dumps(body).encode(), tmp_path)
    assert trace.gpu_ops["launch_t0"].to_list() == [UNKNOWN]
    assert trace.quality.events_lost == 1
    assert np.array_equal(trace.gpu_ops["pid"], [0])

"""An annotated trace is the trace itself and, in a process of its own, what was found in it."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING, Loop
from tests.builders.scenario import Process, Script
from tests.chrome_trace import (
    counters,
    crossing,
    events_of,
    is_ours,
    nanoseconds,
    note,
    ours,
    theirs,
    tracks,
)
from traceprobe.annotate.annotate_trace import annotate
from traceprobe.annotate.chrome_events import Clock
from traceprobe.annotate.counters import Counter
from traceprobe.annotate.nsight_events import lanes
from traceprobe.annotate.tracks import NO_ITERATIONS, Track
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.slicing.slice_trace import slice_trace

MS = 1_000_000
LOOP = Loop(
    steps=8,
    data_wait_ns=5 * MS,
    h2d_ns=MS,
    forward_ns=4 * MS,
    backward_ns=6 * MS,
    comm_ns=3 * MS,
    comm_overlap_ns=MS,
    optimizer_ns=MS,
)
RANK = "traceprobe rank 0"
PARTITIONED = ("phases", "idle", "exposed communication")


@pytest.fixture
def trace(tmp_path):
    return kineto.write(LOOP.scenario(), tmp_path / "trace.json")


def annotated(*paths):
    target = paths[0].with_name("annotated.json.gz")
    annotate(paths, target, replace=True)
    return target


def found_in(path):
    """The report of a file without what names the file, and the order in which names are kept."""
    report = traceprobe.analyze(traceprobe.load(path))
    found = json.loads(report.to_json())
    for source in found["inputs"]:
        for key in ("name", "sha256", "bytes"):
            source.pop(key)
    trees = []
    for rank, saved in zip(report.ranks, found["ranks"], strict=True):
        saved.pop("picture", None)
        if saved.pop("tree", None):
            frame = report.tree(rank.rank)
            trees.append(sorted(map(repr, frame.drop("node", "parent", strict=False).rows())))
    return found, trees


def ranks_of_a_run(tmp_path, formats=kineto):
    """Two ranks whose clocks are a second apart, in processes of one number."""
    loop = replace(LOOP, world_size=2, comm_ns=9 * MS)
    suffix = "json" if formats is kineto else "sqlite"
    return [
        formats.write(
            replace(loop, process=Process(rank=rank), start_ns=(rank + 1) * 10**9).scenario(),
            tmp_path / f"rank{rank}.{suffix}",
        )
        for rank in range(2)
    ]


@pytest.mark.parametrize("dialect", kineto.DIALECTS)
def test_every_event_is_there_as_it_was_and_the_analysis_does_not_change(tmp_path, dialect):
    path = kineto.write(LOOP.scenario(), tmp_path / "trace.json.gz", dialect, gz=True)
    target = annotated(path)
    original = [text for _, text in events_of(path)]
    assert theirs(target) == original
    (about,) = note(target)["inputs"]
    assert about["events"] == len(original)
    assert about["events_sha256"] == hashlib.sha256(",".join(original).encode()).hexdigest()
    assert found_in(target) == found_in(path)


def test_a_trace_that_is_annotated_again_has_the_same_events(trace):
    once = annotated(trace)
    twice = once.with_name("twice.json.gz")
    annotate([once], twice)
    assert theirs(twice) == theirs(once)
    assert len(ours(twice)) == len(ours(once))


def test_the_tracks_are_the_partition_of_the_iterations(trace):
    found = tracks(ours(annotated(trace)))
    (rank,) = traceprobe.analyze(traceprobe.load(trace)).ranks
    windows = found[RANK, "iterations"]
    assert [name for _, _, name, _ in windows] == [f"step {k}" for k in range(len(windows))]
    for (low, high, _, _), iteration in zip(windows, rank.iterations, strict=False):
        inside = {
            name: sum(max(min(t1, high) - max(t0, low), 0) for t0, t1, *_ in found[RANK, name])
            for name in PARTITIONED
        }
        assert sum(inside.values()) == high - low
        idle = sum(v for k, v in iteration.partition_ns.items() if k.startswith("idle") and v)
        assert inside["idle"] == idle
        assert inside["exposed communication"] == iteration.partition_ns["communication"]


def test_idle_slices_say_why_and_between_what(trace):
    idle = tracks(ours(annotated(trace)))[RANK, "idle"]
    causes = {arguments["cause"] for _, _, _, arguments in idle}
    assert "idle_data_wait" in causes
    names = {event["name"] for event, _ in events_of(trace)}
    assert {a[side] for *_, a in idle for side in ("after", "before")} <= names


def test_findings_stand_where_the_longest_stretch_of_theirs_begins(trace):
    events = ours(annotated(trace))
    report = traceprobe.analyze(traceprobe.load(trace))
    instants = {e["args"].get("finding", "verdict"): e for e in events if e["ph"] == "i"}
    asking = {f.id for f in report.findings if f.status in ("fail", "warn")}
    assert set(instants) == {"verdict", *asking}
    assert instants["verdict"]["args"]["bound"] == report.verdict.bound
    waits = [
        (t1 - t0, -t0)
        for t0, t1, _, arguments in tracks(events)[RANK, "idle"]
        if arguments["cause"] == "idle_data_wait"
    ]
    assert nanoseconds(instants["data-wait"]["ts"]) == -max(waits)[1]
    assert instants["data-wait"]["args"]["saving_ms_per_step"] > 0
    assert instants["data-wait"]["args"]["advice"]


def test_counters_are_step_functions_that_end(tmp_path):
    path = kineto.write(LOOP.scenario(), tmp_path / "trace.json", memory=True)
    found = counters(ours(annotated(path)))
    assert {"launch queue", "copy bandwidth h2d", "memory allocated"} <= set(found)
    for name, samples in found.items():
        times = [at for at, _ in samples]
        assert times == sorted(set(times)), name
        assert min(value for _, value in samples) >= 0
    assert found["launch queue"][-1][1] == 0


@pytest.mark.parametrize("dialect", kineto.DIALECTS)
def test_slices_of_one_track_do_not_overlap_in_a_viewer(tmp_path, dialect):
    """Perfetto multiplies what has decimals by 1000 as doubles, and cuts off what is left."""
    path = kineto.write(LOOP.scenario(), tmp_path / "trace.json", dialect)
    read = defaultdict(list)
    for event in ours(annotated(path)):
        if event["ph"] == "X":
            start, length = (
                number * 1000 if isinstance(number, int) else int(float(number) * 1000.0)
                for number in (event["ts"], event["dur"])
            )
            read[event["tid"]].append((start, start + length))
    assert len(read) > len(PARTITIONED)
    assert not any(map(crossing, read.values()))


def test_times_since_1970_are_whole_microseconds():
    epoch = Clock.of(0, 1_700_000_000 * 10**9)
    rows = pl.DataFrame({"t0": [10_400, 10_900, 12_000], "t1": [10_900, 12_000, 12_999]})
    assert epoch.slices(rows).rows() == [(10_000, 12_000)]
    assert bytes(epoch.stamp(12_999)) == b"12"
    boot = Clock.of(0, 40 * 86_400 * 10**9)
    assert boot.slices(rows).rows() == rows.rows()
    assert bytes(boot.stamp(12_999)) == b"12.999"
    assert bytes(boot.stamp(-1)) == b"-0.001"


def test_ranks_are_put_on_one_clock(tmp_path):
    paths = ranks_of_a_run(tmp_path)
    target = annotated(*paths)
    inputs = note(target)["inputs"]
    assert [source["shift_ns"] for source in inputs] == [0, -(10**9)]
    found = tracks(ours(target))
    ends = [
        [t1 for _, t1, *_ in found[f"traceprobe rank {rank}", "exposed communication"]]
        for rank in range(2)
    ]
    assert ends[0] == ends[1]
    processes = [e["pid"] for e, _ in events_of(target) if e["name"] == "process_name"]
    assert len(set(processes)) == len({json.dumps(p) for p in processes})


def test_every_event_of_every_rank_is_there_once_its_moves_are_undone(tmp_path):
    paths = ranks_of_a_run(tmp_path)
    target = annotated(*paths)
    kept = iter([event for event, _ in events_of(target) if not is_ours(event)])
    seen = set()
    for path, about in zip(paths, note(target)["inputs"], strict=True):
        was = {str(new): old for old, new in about["pids"].items()}
        moved = set()
        for event, _ in events_of(path):
            found = next(kept)
            moved.add(str(found["pid"]))
            found["pid"] = type(event["pid"])(was.get(str(found["pid"]), found["pid"]))
            if "ts" in found:
                found["ts"] = Decimal(found["ts"]) - Decimal(about["shift_ns"]) / 1000
            if event["ph"] in ("s", "f"):
                found["id"] -= about["id_shift"]
            assert found == event
        assert not moved & seen  # no process is of two ranks
        seen |= moved
    assert next(kept, None) is None


def test_strange_times_and_names_of_fields_stay_as_they_are(tmp_path):
    paths = ranks_of_a_run(tmp_path)
    strange = b'{"ph":"i","name":"odd","pid":[1],"ts":1e999999999,"caf\xc3\xa9":"\xff","\xff":1},'
    text = paths[1].read_bytes().replace(b'"traceEvents": [', b'"traceEvents": [' + strange)
    paths[1].write_bytes(text)
    target = annotated(*paths)
    written = gzip.decompress(target.read_bytes())
    assert b'"ts":1e999999999' in written
    assert written.decode("utf-8", "replace").count('"odd"') == 1


@pytest.mark.parametrize("formats", [kineto, nsight])
def test_what_is_made_for_viewers_only_is_not_analysed(tmp_path, formats):
    target = annotated(*ranks_of_a_run(tmp_path, formats))
    with pytest.raises(UnsupportedInput, match=r"analyse what it was made of: rank0.*, rank1\."):
        traceprobe.load(target)


def test_an_export_of_nsight_has_its_rows_on_named_tracks(tmp_path):
    path = nsight.write(EVERYTHING.scenario(), tmp_path / "run.sqlite")
    trace = traceprobe.load(path)
    target = annotated(path)
    events = [event for event, _ in events_of(target) if not is_ours(event)]
    kinds = [event["cat"] for event in events if event["ph"] == "X"]
    on_gpu = {"kernel", "gpu_memcpy", "gpu_memset"}
    assert sum(kind in on_gpu for kind in kinds) == len(trace.gpu_ops)
    assert kinds.count("cuda_runtime") == len(trace.host_calls)
    ranges = kinds.count("user_annotation") + kinds.count("overhead")
    assert ranges == len(trace.host_ranges)
    found = tracks(events)
    assert sorted(
        t0 for (process, _), each in found.items() if process.startswith("GPU") for t0, *_ in each
    ) == sorted(trace.gpu_ops["t0"].to_list())
    assert not any(map(crossing, found.values()))
    assert (RANK, "phases") in tracks(ours(target))


def test_rows_that_cross_get_tracks_of_their_own():
    t0, t1 = np.array([0, 1, 5, 12, 12]), np.array([10, 4, 11, 14, 13])
    assert lanes(t0, t1).tolist() == [0, 0, 1, 0, 0]
    apart = np.array([0, 5, 9])
    assert lanes(apart, apart + 4).tolist() == [0, 0, 0]


def test_the_longest_slices_and_the_largest_values_are_kept():
    rows = pl.DataFrame({"t0": [0, 10, 20], "t1": [5, 12, 29], "name": ["a", "b", "c"]})
    track = Track("t", rows).longest(2)
    assert (track.slices["name"].to_list(), track.left_out) == (["a", "c"], 1)
    samples = pl.DataFrame({"time_ns": range(1000), "value": [*range(999), 0]})
    counter = Counter("c", "u", samples).thinned(11)
    assert counter.samples["value"].to_list()[-2:] == [998, 0]
    assert len(counter.samples) + counter.left_out == 1000
    assert len(counter.samples) <= 11


def test_a_cut_trace_is_annotated_as_far_as_it_goes(trace):
    whole = [text for _, text in events_of(trace)]
    trace.write_bytes(trace.read_bytes()[: trace.stat().st_size * 2 // 3])
    target = annotated(trace)
    kept = theirs(target)
    assert kept[:-1] == whole[: len(kept) - 1]
    assert len(kept) > len(whole) // 2
    assert note(target)["inputs"][0]["events_lost"] <= 1


def test_a_trace_that_is_changed_meanwhile_is_told(trace, monkeypatch):
    from traceprobe.annotate import annotate_trace

    merge = annotate_trace.merge

    def changing(*given):
        trace.write_bytes(trace.read_bytes().replace(b"step 1", b"step 7"))
        return merge(*given)

    monkeypatch.setattr(annotate_trace, "merge", changing)
    with pytest.raises(DamagedInput, match="was changed"):
        annotated(trace)
    assert not trace.with_name("annotated.json.gz").exists()


def test_what_was_added_is_in_no_slice_and_no_anonymous_copy(trace, tmp_path):
    target = annotated(trace)
    slice_trace(target, tmp_path / "slice.json", (1, 4))
    anonymise_trace(target, tmp_path / "copy.json")
    for path in (tmp_path / "slice.json", tmp_path / "copy.json"):
        assert not ours(path)
        assert "traceprobe rank" not in path.read_text()


def test_a_trace_without_iterations_says_so_and_has_the_other_tracks(cli, tmp_path):
    script = Script()
    for at in (0, 5_000):
        script.op("kernel", 1_000 + at, 3_000 + at, (500 + at, 600 + at))
    kineto.write(script.build(), tmp_path / "trace.json")
    done = cli("annotate", "trace.json", "-o", "out.json").expect(0)
    assert "no iterations were found: name them with --step" in done.err
    found = tracks(ours(tmp_path / "out.json"))
    ((_, _, name, _),) = found[RANK, "iterations"]
    assert name == NO_ITERATIONS
    assert [t1 - t0 for t0, t1, *_ in found[RANK, "phases"]] == [2_000, 2_000]
    assert sum(t1 - t0 for t0, t1, *_ in found[RANK, "idle"]) == 3_000


def test_no_folder_is_in_the_output(trace):
    assert str(trace.parent) not in json.dumps(ours(annotated(trace)), default=str)


def test_the_command_says_what_it_wrote(cli, tmp_path):
    kineto.write(LOOP.scenario(), tmp_path / "run.json")
    done = cli("annotate", "run.json", "-o", "out.json.gz").expect(0)
    assert "wrote out.json.gz" in done.err
    assert "ui.perfetto.dev" in done.err
    cli("annotate", "run.json", "-o", "out.json.gz").expect(2)
    assert "is an input" in cli("annotate", "run.json", "-fo", "run.json").expect(2).err
    (tmp_path / "empty.json").write_bytes(b"")
    assert "empty" in cli("annotate", "empty.json", "-o", "x.json").expect(2).err
    assert not (tmp_path / "x.json").exists()


CORPUS = (
    "kineto/hta_alexnet_cudasync.json.gz",
    "kineto/hta_nccl_ddp2_rank0.json.gz",
    "kineto/tl_h100_bert_small.json.gz",
    "kineto/tl_mi210_gpu_only.json.gz",
    "kineto/hta_sampled_w128_rank0.json.gz",
    "wild/deepseek_train.json.gz",
    "wild/solangii_default.json.gz",
    "wild/luatil_trace_04.json.gz",
    "wild/h200_gan/rank0.json.gz",
)
"""Of several dialects, from NVIDIA and AMD, with memory, without steps, without a CPU side."""
EXPORTS = (
    "nsys/h200_unet_w1.sqlite.gz",
    "nsys/sc21_8workers.sqlite.gz",
    "nsys/h100_2gpu_1s.sqlite.gz",
)


@pytest.mark.parametrize("name", CORPUS)
def test_a_real_trace_keeps_its_events_and_its_verdict(corpus, tmp_path, name):
    path, target = corpus / name, tmp_path / (corpus / name).name
    annotate([path], target)
    original = [text for _, text in events_of(path)]
    assert theirs(target) == original
    digest = hashlib.sha256(",".join(original).encode()).hexdigest()
    assert note(target)["inputs"][0]["events_sha256"] == digest
    assert found_in(target) == found_in(path)
    assert not any(map(crossing, tracks(ours(target)).values()))


@pytest.mark.parametrize("name", EXPORTS)
def test_a_real_export_has_all_its_rows(corpus, tmp_path, name):
    path, target = corpus / name, tmp_path / "out.json.gz"
    annotate([path], target)
    trace = traceprobe.load(path)
    events = [event for event, _ in events_of(target) if not is_ours(event)]
    kinds = [event["cat"] for event in events if event["ph"] == "X"]
    on_gpu = {"kernel", "gpu_memcpy", "gpu_memset"}
    assert sum(kind in on_gpu for kind in kinds) == len(trace.gpu_ops)
    assert kinds.count("cuda_runtime") == len(trace.host_calls)
    assert note(target)["inputs"][0]["events"] == len(kinds)
    assert not any(map(crossing, tracks(events).values()))


def test_the_ranks_of_a_real_run_end_their_collectives_together(corpus, tmp_path):
    paths = sorted((corpus / "wild/megatron_tp8").glob("*.json.gz"))
    target = tmp_path / "out.json.gz"
    found = annotate(paths, target)
    assert found.adrift == []
    inputs = note(target)["inputs"]
    assert [source["events"] for source in inputs] == [len(events_of(path)) for path in paths]
    for path, source in zip(paths, inputs, strict=True):
        text = ",".join(text for _, text in events_of(path))
        assert source["events_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert len(theirs(target)) == sum(source["events"] for source in inputs)

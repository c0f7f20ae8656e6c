"""Damaged and foreign files: what is kept, what is counted, what the errors say."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import traceprobe
from tests.builders import faults, kineto, nsight, truth
from tests.builders.loop import Loop
from tests.builders.scenario import Process, Script
from traceprobe.errors import DamagedInput, TraceprobeError, UnsupportedInput
from traceprobe.ingest.kineto import chunks
from traceprobe.ingest.read_trace import read_trace

LOOP = Loop(
    steps=3,
    data_wait_ns=300_000,
    h2d_ns=40_000,
    forward_ns=400_000,
    backward_ns=600_000,
    comm_ns=250_000,
    comm_overlap_ns=100_000,
    optimizer_ns=100_000,
)
SAMPLES = Path(__file__).parents[1] / "sample_traces"
UNREADABLE = ("negative-duration", "zero-time", "missing-duration", "missing-quote")


@cache
def dumped(dialect="E"):
    """The bytes of an undamaged trace."""
    return kineto.dumps(LOOP.scenario(), dialect)


@cache
def gpu_ops():
    """What is in it."""
    return truth.gpu_ops(LOOP.scenario(), kineto.EPOCH_NS)


def read(data, folder, name="trace.json"):
    path = folder / name
    path.write_bytes(data)
    return read_trace(path)


def without_first_kernel(rows):
    first = next(i for i, row in enumerate(rows) if row["kind"] in (0, 1))
    return rows[:first] + rows[first + 1 :]


@pytest.mark.parametrize("fault", faults.KINETO, ids=str)
@pytest.mark.parametrize(
    ("dialect", "chunk"), [("E", 2_000), ("E", 1 << 20), ("F", 2_000), ("G", 2_000)]
)
def test_a_damaged_event_costs_that_event_and_is_counted(
    tmp_path, monkeypatch, dialect, chunk, fault
):
    monkeypatch.setattr(chunks, "CHUNK", chunk)
    damaged, affected = fault.apply(dumped(dialect))
    trace = read(damaged, tmp_path)
    seen = truth.seen_ops(trace)
    quality = trace.quality
    if fault.outcome == "intact":
        assert seen == gpu_ops()
        assert (quality.events_lost, quality.events_repaired) == (0, 0)
    elif fault.outcome == "repaired":
        assert seen == gpu_ops()
        assert (quality.events_lost, quality.events_repaired) == (0, affected)
    elif fault.name in UNREADABLE:
        assert seen == without_first_kernel(gpu_ops())
        assert (quality.events_lost, quality.events_repaired) == (1, 0)
    else:  # the rest of a cut file is gone, nobody can say how much of it there was
        assert all(row in gpu_ops() for row in seen)
        assert (quality.events_lost, quality.events_repaired) == (1, 0)


@pytest.mark.parametrize("fault", faults.KINETO, ids=str)
def test_only_a_cut_file_is_called_cut(tmp_path, fault):
    trace = read(fault.apply(dumped())[0], tmp_path)
    assert ("truncated-file" in trace.quality.warnings) == fault.name.startswith("cut-")


@pytest.mark.parametrize("left", [0.1, 0.25])
def test_what_a_cut_file_does_not_tell_is_asked_of_the_whole_file(tmp_path, left):
    """And not of another recording: operators come before their kernels there."""
    path = tmp_path / "cut.json"
    whole = gzip.decompress((SAMPLES / "h200_unet_w1.json.gz").read_bytes())
    path.write_bytes(whole[: int(left * len(whole))])
    report = traceprobe.analyze(traceprobe.load(path))
    assert "cut off" in report.verdict.headline
    assert "profile" not in report.verdict.headline
    found = next(f for f in report.findings if f.id == "gpu-rows-missing")
    assert (found.status, "copy it again" in found.advice) == ("fail", True)


@pytest.mark.parametrize("left", [0.45, 0.6, 0.8, 0.9])
def test_a_cut_through_all_steps_leaves_a_guess(tmp_path, left):
    """Kernels of the backward pass are written last, those of all steps."""
    path = tmp_path / "cut.json"
    whole = gzip.decompress((SAMPLES / "h200_unet_w1.json.gz").read_bytes())
    path.write_bytes(whole[: int(left * len(whole))])
    report = traceprobe.analyze(traceprobe.load(path))
    assert report.verdict.confidence <= 0.3
    assert "truncated-steps" in {warning.code for warning in report.quality.warnings}
    if report.verdict.bound != "inconclusive":
        assert report.verdict.headline.startswith("Possibly")
        assert "the file is cut off" in report.verdict.headline.lower()


def test_a_cut_at_the_end_of_the_last_step_leaves_the_others(tmp_path):
    """Where events are in order of time."""
    fault = next(f for f in faults.KINETO if f.name == "cut-in-middle")
    trace = read(fault.apply(dumped())[0], tmp_path)
    assert "truncated-file" in trace.quality.warnings
    assert "truncated-steps" not in trace.quality.warnings


def test_a_damaged_tail_keeps_the_base_time_and_the_rank(tmp_path):
    scenario = replace(LOOP, process=Process(rank=2), world_size=4).scenario()
    good = kineto.dumps(scenario, base_after_events=True, distributed="after")
    fault = next(f for f in faults.KINETO if f.name == "log-text-in-tail")
    trace = read(fault.apply(good)[0], tmp_path)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario, kineto.EPOCH_NS)
    assert trace.rank_of == {1000: 2}


@pytest.mark.parametrize("layout", ["raw", "lines", "single", "indent"])
def test_several_damaged_events_are_told_apart(tmp_path, layout):
    data = kineto.dumps(LOOP.scenario(), layout=layout)
    body = json.loads(data)
    kernels = [n for n, e in enumerate(body["traceEvents"]) if e.get("cat") == "kernel"]
    spans = faults.spans(data)
    for number in reversed(kernels[:3]):
        start, end = spans[number]
        event = data[start:end].replace(b'"args"', b'"x": nan, "args"', 1)
        data = data[:start] + event + data[end:]
    start, _ = spans[kernels[3]]
    at = data.index(b'"cat"', start + 30)
    data = data[:at] + data[at + 1 :]
    trace = read(data, tmp_path)
    assert (trace.quality.events_repaired, trace.quality.events_lost) == (3, 1)


def test_the_repaired_name_keeps_its_text(tmp_path):
    fault = next(f for f in faults.KINETO if f.name == "unescaped-quote")
    trace = read(fault.apply(dumped())[0], tmp_path)
    damaged = [n for n in truth.op_names(trace) if n.startswith("<eval")]
    assert len(damaged) == 1
    assert damaged[0].startswith('<eval "f">')
    assert damaged[0].endswith("AddFunctor<float>>(int, float*)")


def test_every_event_before_a_cut_survives(tmp_path):
    fault = next(f for f in faults.KINETO if f.name == "cut-in-middle")
    damaged, _ = fault.apply(dumped())
    complete = [json.loads(dumped()[a:b]) for a, b in faults.spans(dumped()) if b <= len(damaged)]
    on_gpu = sum(e.get("cat") in ("kernel", "gpu_memcpy") for e in complete)
    assert len(read(damaged, tmp_path).gpu_ops) == on_gpu > 0


@pytest.mark.parametrize("fraction", [0.8, 0.95, 0.999])
def test_a_truncated_gzip_yields_what_decodes(tmp_path, fraction):
    packed, affected = faults.truncated_gzip(dumped(), fraction)
    events = [json.loads(dumped()[a:b]) for a, b in faults.spans(dumped())]
    complete = events[: len(events) - affected]
    on_gpu = sum(e.get("cat") in ("kernel", "gpu_memcpy") for e in complete)
    trace = read(packed, tmp_path, "trace.json.gz")
    assert len(trace.gpu_ops) == on_gpu
    assert "truncated-file" in trace.quality.warnings


def test_a_whole_file_is_not_called_truncated(tmp_path):
    for dialect in kineto.DIALECTS:
        trace = read(kineto.dumps(LOOP.scenario(), dialect), tmp_path)
        assert trace.quality.warnings == {}


REPORT = "nsys export --type sqlite"


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("run.sqlite", faults.LFS_POINTER, ("Git LFS", "git lfs pull", "run.sqlite")),
        ("run.nsys-rep", faults.NSYS_REPORT, (REPORT, "run.nsys-rep")),
        ("run.qdrep", b"\x01\x02\x03" * 99, (REPORT, "run.qdrep")),
        ("renamed.sqlite", faults.NSYS_REPORT, (REPORT,)),
        ("run.h5", faults.HDF5, ("HDF5", REPORT)),
        ("run.parquet", faults.PARQUET, ("Parquet", REPORT)),
        ("run.pftrace", faults.PFTRACE, (".pftrace", "export_chrome_trace")),
        ("run.json", faults.PFTRACE, (".pftrace", "export_chrome_trace")),
        ("run.zip", b"PK\x03\x04" + bytes(99), ("zip", "unzip")),
        ("notes.txt", b"step 1 took 3 ms\n" * 9, ("export_chrome_trace", REPORT)),
    ],
)
@pytest.mark.parametrize("gz", [False, True])
def test_foreign_files_are_named_and_the_command_that_helps(tmp_path, name, data, parts, gz):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if gz else data)
    with pytest.raises(UnsupportedInput) as failure:
        read_trace(path)
    message = str(failure.value)
    assert message.startswith(name)
    assert all(part in message for part in parts)
    assert str(tmp_path) not in message


def test_a_gzip_file_that_ends_before_anything_decodes_is_not_called_empty(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 100, mtime=0)[:5])
    with pytest.raises(DamagedInput, match="the gzip stream is cut off; copy or capture it again"):
        read_trace(path)


@pytest.mark.parametrize("data", [b"", b" \n\n ", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_called_empty(tmp_path, data):
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(DamagedInput, match=r"trace\.json: the file is empty"):
        read_trace(path)


@pytest.mark.parametrize("write", [kineto.write, nsight.write], ids=["json", "export"])
def test_a_file_that_is_rewritten_while_it_is_read_is_refused(tmp_path, write):
    """Also where its size stays, and its time is put back as archives and copies do."""
    path = write(LOOP.scenario(), tmp_path / "trace")
    before = path.stat()

    def rewrite(done, total):
        with path.open("r+b") as file:
            file.seek(before.st_size // 2)
            file.write(b"x")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns

    with pytest.raises(DamagedInput, match="was changed while it was read"):
        read_trace(path, rewrite)


@pytest.mark.parametrize("length", [247, 251, 255])
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path, length):
    """Those of the journals that SQLite would look for beside it are then too long."""
    path = nsight.write(LOOP.scenario(), tmp_path / "run.sqlite")
    named = path.rename(tmp_path / ("x" * length))
    assert len(read_trace(named).gpu_ops)


def test_a_folder_and_a_missing_file(tmp_path):
    with pytest.raises(UnsupportedInput, match="directory"):
        read_trace(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    "damage",
    [faults.truncated_sqlite, faults.overwritten_sqlite, lambda data: data[:100]],
    ids=["truncated", "overwritten", "header-only"],
)
@pytest.mark.parametrize("gz", [False, True])
def test_a_broken_export_names_the_command_that_makes_a_new_one(tmp_path, damage, gz):
    path = nsight.write(LOOP.scenario(), tmp_path / "run.sqlite")
    data = damage(path.read_bytes())
    path.write_bytes(gzip.compress(data) if gz else data)
    with pytest.raises(DamagedInput, match=r"run\.sqlite: .*nsys export --type sqlite"):
        read_trace(path)


def test_a_truncated_gzip_of_an_export_is_damaged(tmp_path):
    path = nsight.write(LOOP.scenario(), tmp_path / "run.sqlite.gz", gz=True)
    path.write_bytes(path.read_bytes()[:2_000])
    with pytest.raises(DamagedInput, match=r"run\.sqlite\.gz: the gzip stream is broken"):
        read_trace(path)


def test_a_half_written_export_says_that_it_was_cut_short(tmp_path):
    path = nsight.edit(tmp_path / "half.sqlite", *faults.HALF_WRITTEN)
    with pytest.raises(TraceprobeError, match=r"half\.sqlite: .*nsys export --type sqlite"):
        read_trace(path)


def test_another_sqlite_database_is_no_export(tmp_path):
    path = nsight.edit(tmp_path / "other.db", "CREATE TABLE users (id INTEGER, name TEXT)")
    with pytest.raises(UnsupportedInput, match=r"other\.db: "):
        read_trace(path)


def test_text_in_integer_columns_costs_those_rows(tmp_path):
    script = Script()
    for k in range(4):
        at = 1_000_000 + k * 10_000
        script.op("kernel", at, at + 5_000, (at - 9_000, at - 8_000))
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    nsight.edit(path, *faults.TEXT_IN_INTEGERS)
    trace = read_trace(path)
    assert trace.gpu_ops["t0"].to_list() == [1_010_000, 1_020_000, 1_030_000]
    assert trace.quality.events_lost == 1
    assert trace.gpu_ops["linked"].to_list() == [True] * 3
    assert trace.host_calls["recorded"].to_list() == [False, True, True, True]

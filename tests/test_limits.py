"""Hostile input stops at limits before memory, disk or patience do."""

from __future__ import annotations

import errno
import gzip
import json
import resource
import signal
import sqlite3
from functools import partial
from unittest.mock import Mock

import pytest
from msgspec.structs import asdict

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.scenario import Process, Script
from tests.cli_runner import spawn
from tests.conftest import ROOT
from traceprobe.errors import DamagedInput, UsageError
from traceprobe.ingest import limits, sparse_files
from traceprobe.ingest.kineto import chunks
from traceprobe.ingest.limits import Limits, parse_limits
from traceprobe.ingest.read_trace import read_trace

MB = 1 << 20
MEMORY = 3 << 29
"""Address space of a child: its libraries take half of it."""


@pytest.fixture(autouse=True)
def ends():
    """What takes minutes is a hang; every input here is small."""

    def late(*_):
        raise TimeoutError("an input took more than two minutes")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def in_little_memory(*arguments, cwd):
    """The command line in a process that may not take more than 1.5 GiB."""
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY, MEMORY))
    small = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return spawn(*arguments, cwd=cwd, preexec_fn=limit, env=small)


def trace_of(*kernels):
    script = Script()
    for at in kernels or (1_000, 2_000, 3_000):
        script.op("kernel", at, at + 100, (at - 200, at - 100))
    return json.loads(kineto.dumps(script.build()))


def packed(path, before, filler, count, after):
    """A gzipped file with so many MiB of a byte in its middle."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(before)
        for _ in range(count):
            file.write(filler * MB)
        file.write(after)
    return path


def around(text):
    """A good trace in two parts, with something between two of its events."""
    body = trace_of()
    data = json.dumps(body["traceEvents"]).encode()
    middle = data.index(b"}, {") + 3
    return b'{"traceEvents": ' + data[:middle] + text, data[middle:] + b"}"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["name", "argument", "spaces"])
def test_a_text_of_300_megabytes_costs_its_event_only(tmp_path, where):
    begin, end = {
        "name": (b'{"ph": "X", "name": "', b'", "ts": 1, "dur": 1}, '),
        "argument": (b'{"ph": "X", "name": "a", "args": {"x": "', b'"}, "ts": 1, "dur": 1}, '),
        "spaces": (b"", b""),
    }[where]
    before, after = around(begin)
    filler = b" " if where == "spaces" else b"A"
    path = packed(tmp_path / "trace.json.gz", before, filler, 300, end + after)
    assert path.stat().st_size < 4 * MB
    done = in_little_memory("analyze", path.name, "-o", "-", cwd=tmp_path).expect(0)
    quality = json.loads(done.out)["quality"]
    assert quality["gpu_ops"] == 3
    if where != "spaces":
        assert quality["damage"]["oversized-events"] >= 1
        assert quality["events_lost"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"{", b'{"a": "', b'{"a": [['], ids=["spaces", "text", "lists"])
def test_300_megabytes_before_the_events_are_refused(tmp_path, before):
    filler = {b"{": b" ", b'{"a": "': b"A", b'{"a": [[': b"["}[before]
    path = packed(tmp_path / "trace.json.gz", before, filler, 300, b'"traceEvents": []}')
    done = in_little_memory("analyze", path.name, cwd=tmp_path).expect(2)
    assert "without trace events" in done.err


@pytest.mark.slow
def test_300_megabytes_behind_the_events_cost_the_properties_there_only(tmp_path):
    body = json.dumps(trace_of()).encode().rstrip(b"}")
    path = packed(tmp_path / "trace.json.gz", body + b', "INFO": ["', b"A", 300, b'"]}')
    done = in_little_memory("analyze", path.name, "-o", "-", cwd=tmp_path).expect(0)
    assert json.loads(done.out)["quality"]["gpu_ops"] == 3


@pytest.mark.slow
def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path):
    bomb = packed(tmp_path / "trace.json.gz", b'{"traceEvents": [', b" ", 100, b"]}")
    done = in_little_memory("analyze", bomb.name, "--limit", "unpacked=64M", cwd=tmp_path).expect(2)
    assert "unpack to more than 67,108,864" in done.err
    assert "--limit unpacked=BYTES" in done.err
    inspected = in_little_memory("inspect", bomb.name, "--limit", "unpacked=9M", cwd=tmp_path)
    assert "--limit" in inspected.expect(2).err


@pytest.mark.slow
def test_an_export_that_unpacks_to_more_than_the_limit_is_refused(tmp_path):
    bomb = packed(tmp_path / "run.sqlite.gz", b"SQLite format 3\0", b"\0", 100, b"")
    done = in_little_memory("analyze", bomb.name, "--limit", "unpacked=64M", cwd=tmp_path).expect(2)
    assert "unpack to more than" in done.err


def test_without_an_option_a_small_file_may_unpack_to_gigabytes_and_a_large_one_to_its_multiple(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "LEAST_UNPACKED", 3 * MB)
    good = json.dumps(trace_of()).encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(good + b" " * 2 * MB))
    assert len(read_trace(path).gpu_ops) == 3
    path.write_bytes(gzip.compress(good + b" " * 3 * MB))
    with pytest.raises(DamagedInput, match="unpack to more than"):
        read_trace(path)
    assert len(read_trace(path, limits=parse_limits(["unpacked=10M"])).gpu_ops) == 3
    monkeypatch.setattr(limits, "LEAST_UNPACKED", 0)
    path.write_bytes(gzip.compress(good))
    assert len(read_trace(path).gpu_ops) == 3


def test_an_export_that_does_not_fit_the_disk_is_refused_before_it_fills_it(tmp_path, monkeypatch):
    path = nsight.write(Script().op("kernel", 1, 2).build(), tmp_path / "run.sqlite.gz", gz=True)
    free = limits.shutil.disk_usage(tmp_path)._replace(free=limits._DISK_KEPT + 1000)
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda folder: free)
    with pytest.raises(DamagedInput, match=r"run\.sqlite\.gz: does not fit.*TMPDIR"):
        read_trace(path)


@pytest.mark.slow
def test_a_bomb_among_ranks_costs_its_rank(tmp_path):
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace_of()))
    packed(tmp_path / "rank2.json.gz", b'{"traceEvents": [', b" ", 20, b"]}")
    done = spawn("analyze", ".", "-o", "-", "--limit", "unpacked=9M", cwd=tmp_path).expect(0)
    report = json.loads(done.out)
    assert [lost["name"] for lost in report["quality"]["lost"]] == ["rank2.json.gz"]


def absurd(folder, what, count):
    """A trace with so many of something that the reader or the report goes through one by one."""
    script = Script()
    for k in range(count):
        at = 10_000 + 1_000 * k
        names = {"name": f"kernel {k}"} if what == "names" else {}
        place = {what[:-1]: k} if what in ("devices", "streams") else {}
        thread = k + 1 if what == "threads" else None
        script.op("kernel", at, at + 10, (at - 200, at - 100), thread=thread, **place, **names)
        if what == "iterations":
            script.range(f"step {k}", at - 300, at - 50)
    return kineto.write(script.build(), folder / "trace.json")


@pytest.mark.parametrize("what", ["names", "devices", "streams", "threads", "iterations"])
def test_more_of_something_than_the_limit_is_refused(tmp_path, what):
    path = absurd(tmp_path, what, 40)
    few = parse_limits([f"{what}=39"])
    with pytest.raises(DamagedInput, match=f"more than 39 {what}.*--limit {what}=NUMBER"):
        traceprobe.analyze(read_trace(path, limits=few), traceprobe.Options(limits=few))
    enough = parse_limits([f"{what}=100"])
    report = traceprobe.analyze(read_trace(path, limits=enough), traceprobe.Options(limits=enough))
    assert report.quality.gpu_ops == 40


@pytest.mark.parametrize("what", ["devices", "streams", "threads"])
def test_absurd_numbers_are_refused_by_default(tmp_path, what):
    path = absurd(tmp_path, what, getattr(Limits(), what) + 1)
    with pytest.raises(DamagedInput, match=f"--limit {what}=NUMBER"):
        read_trace(path)


def test_steps_of_many_devices_are_limited_together(tmp_path):
    """Each within its own limit, they multiply."""
    script = Script(Process(devices=("A100",) * 4))
    for k in range(10):
        at = 10_000 + 1_000 * k
        for device in range(4):
            script.op("kernel", at, at + 10, (at - 200 + device, at - 199 + device), device=device)
        script.range(f"step {k}", at - 300, at - 50)
    path = kineto.write(script.build(), tmp_path / "trace.json")
    few = parse_limits(["windows=39"])
    with pytest.raises(DamagedInput, match=r"more than 39 windows.*--limit windows=NUMBER"):
        traceprobe.analyze(read_trace(path, limits=few), traceprobe.Options(limits=few))
    enough = parse_limits(["windows=40"])
    assert len(traceprobe.analyze(read_trace(path), traceprobe.Options(limits=enough)).ranks) == 4


def holes(path, before):
    """A file of a terabyte, of which nothing but its beginning is on the disk."""
    path.write_bytes(before)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    return path


@pytest.mark.parametrize("kind", ["json", "export", "gzip"])
def test_a_terabyte_of_holes_is_refused_before_it_is_read(tmp_path, kind):
    trace = kineto.dumps(Script().op("kernel", 10, 20, (0, 1)).build())
    export = nsight.write(Script().op("kernel", 10, 20, (0, 1)).build(), tmp_path / "run.sqlite")
    before = {"json": trace[:-20], "export": export.read_bytes(), "gzip": gzip.compress(trace)}
    path = holes(tmp_path / f"a.{kind}", before[kind])
    with pytest.raises(DamagedInput, match="are stored and the rest are holes; copy the file"):
        read_trace(path)


def test_holes_buy_no_steps_no_texts_and_no_bytes_behind_gzip(tmp_path):
    data = b"x" * MB
    path = tmp_path / "a"
    path.write_bytes(data)
    assert sparse_files.stored_bytes(path) == MB
    with path.open("r+b") as file:
        file.truncate(3 << 30)
        file.seek(2 << 30)
        file.write(data)
    assert sparse_files.stored_bytes(path) == 2 * MB
    assert limits.UnpackedBudget(path, Limits())._packed == 2 * MB
    with path.open("rb") as file:  # less than any file may unpack to
        file.seek(7)
        sparse_files.refuse_sparse_file(path, file)
        assert file.tell() == 7


def test_what_a_system_does_not_say_of_holes_is_data(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert sparse_files.stored_bytes(path) == 0
    with path.open("r+b") as file:
        file.truncate(3 * MB)
    monkeypatch.setattr(
        sparse_files.os, "lseek", Mock(side_effect=[0, OSError(errno.EINVAL, "no"), 0])
    )
    assert sparse_files.stored_bytes(path) == 3 * MB
    monkeypatch.delattr(sparse_files.os, "SEEK_DATA")
    assert sparse_files.stored_bytes(path) == 3 * MB


def test_limits_are_parsed():
    assert parse_limits([]) == Limits()
    assert parse_limits(["unpacked=20G", "threads=9"]) == Limits(unpacked=20 << 30, threads=9)
    assert parse_limits(["unpacked=3KiB"]).unpacked == 3 << 10
    for text in ("unpacked", "unpacked=", "unpacked=x", "bytes=3", "threads=-1", "threads=1.5"):
        with pytest.raises(UsageError, match=r"--limit .*: write NAME=NUMBER.*unpacked, names"):
            parse_limits([text])


def test_the_page_has_every_limit_with_its_default():
    page = (ROOT / "docs" / "damaged-input.md").read_text(encoding="utf-8")
    for name, value in asdict(Limits()).items():
        default = "4 GiB" if name == "unpacked" else f"{value:,}"
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert default in row


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        b'{"args": ' * 200_000,
        b"[" * 2_000_000,
        b'{"traceEvents": [' + b'{"args": {"x": ' * 100_000 + b"1" + b"}}" * 100_000 + b"]}",
        b'{"distributedInfo": ' + b'{"a": ' * 100_000,
    ],
    ids=["objects", "lists", "arguments", "metadata"],
)
def test_deep_nesting_is_refused(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    done = in_little_memory("analyze", path.name, cwd=tmp_path).expect(2)
    assert done.err.startswith("traceprobe: trace.json: ")


@pytest.mark.parametrize("name", ["step", "step_", "step1", "batch ", "Optimizer.step#", "cudnn_"])
def test_a_long_name_is_no_riddle(tmp_path, name):
    """Expressions that try every way to read a name would take hours."""
    body = trace_of()
    long = {"ph": "X", "cat": "cpu_op", "pid": 1000, "tid": 1000, "ts": 1.0, "dur": 5.0}
    body["traceEvents"] += [
        long | {"name": name * 40_000 + "!"},
        long | {"name": name + "_" * 40_000},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(body))
    assert len(traceprobe.analyze(read_trace(path)).ranks) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        b'"name": "' * 200_000,
        b"}]," * 300_000,
        b'}], "a": [' * 100_000,
        b"}" + b" " * 2_000_000,
        b'{"ph": "X", "name": ' * 100_000,
        b"\\" * 1_000_000,
        b"nan, " * 300_000,
    ],
    ids=["names", "ends", "keys", "spaces", "events", "backslashes", "nan"],
)
def test_damage_is_no_riddle(tmp_path, text):
    before, after = around(b"")
    path = tmp_path / "trace.json"
    path.write_bytes(before + text + after)
    try:
        trace = read_trace(path)
    except DamagedInput:
        return
    assert len(trace.gpu_ops) <= 3


def test_events_longer_than_any_event_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 2_000)
    monkeypatch.setattr(chunks, "LONGEST", 8_000)
    before, after = around(b'{"ph": "X", "name": "' + b"A" * 30_000 + b'", "ts": 1, "dur": 1}, ')
    path = tmp_path / "trace.json"
    path.write_bytes(before + after)
    trace = read_trace(path)
    assert len(trace.gpu_ops) == 3
    assert trace.quality.damage["oversized-events"] >= 1
    assert trace.quality.events_lost >= 1


@pytest.mark.slow
@pytest.mark.parametrize("table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"])
def test_huge_blobs_are_left_where_they_are(tmp_path, table):
    script = Script().op("kernel", 1_000, 2_000, (1, 2)).range("step 0", 0, 900)
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    with sqlite3.connect(path) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(
            "zeroblob(300000000)" if c in ("value", "text", "shortName") else "1" for c in columns
        )
        db.execute(f"INSERT INTO {table} SELECT {values}")
    db.close()
    (tmp_path / "run.sqlite.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    path.unlink()
    done = in_little_memory("analyze", "run.sqlite.gz", "-o", "-", cwd=tmp_path).expect(0)
    assert json.loads(done.out)["quality"]["gpu_ops"] >= 1

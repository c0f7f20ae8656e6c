"""A slice is a small trace whose steps are accounted as they were in the whole."""

from __future__ import annotations

import gzip
import json
import sqlite3

import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING, Loop
from traceprobe.slicing.slice_trace import slice_trace

LOOP = Loop(
    steps=8,
    h2d_ns=40_000,
    forward_ns=400_000,
    backward_ns=600_000,
    comm_ns=200_000,
    comm_overlap_ns=100_000,
    optimizer_ns=100_000,
    data_wait_ns=500_000,
)
FORMATS = {
    "kineto": ("trace.json", kineto.write),
    "kineto-gz": ("trace.json.gz", lambda s, p: kineto.write(s, p, gz=True)),
    "nsys": ("run.sqlite", nsight.write),
    "nsys-gz": ("run.sqlite.gz", lambda s, p: nsight.write(s, p, gz=True)),
}


def accounts(path):
    (rank,) = traceprobe.analyze(traceprobe.load(path)).ranks
    return {i.label: (i.partition_ns, i.busy_ns) for i in rank.iterations if i.partition_ns}


def nonzero(account):
    return [{k: v for k, v in part.items() if v} for part in account]


@pytest.mark.parametrize("name", FORMATS)
def test_the_steps_of_a_slice_are_accounted_as_in_the_whole(tmp_path, name):
    file, write = FORMATS[name]
    write(LOOP.scenario(), tmp_path / file)
    target = tmp_path / f"cut-{file}"
    slice_trace(tmp_path / file, target, (2, 6))
    whole, part = accounts(tmp_path / file), accounts(target)
    assert list(part) == ["step 2", "step 3", "step 4"]  # the last one has no end
    for label, account in part.items():
        assert nonzero(account) == nonzero(whole[label])


@pytest.mark.parametrize("name", ["kineto", "nsys"])
def test_every_kind_of_row_survives_a_slice_of_everything(tmp_path, name):
    file, write = FORMATS[name]
    write(EVERYTHING.scenario(), tmp_path / file)
    whole = traceprobe.load(tmp_path / file)
    slice_trace(tmp_path / file, tmp_path / f"cut-{file}", (0, 10_000))
    part = traceprobe.load(tmp_path / f"cut-{file}")
    launched = whole.gpu_ops["linked"].sum()
    assert part.gpu_ops["linked"].sum() == launched
    assert set(part.gpu_ops["kind"]) == set(whole.gpu_ops["kind"])


def test_the_same_slice_gives_the_same_bytes(tmp_path, samples):
    source = samples / "cpu_convnet.json.gz"
    for name in ("a.json.gz", "b.json.gz"):
        slice_trace(source, tmp_path / name, (0, 3))
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_kineto_slice_is_plain_json_with_its_provenance_and_nothing_private(tmp_path):
    private = {"host_name": "node17", "username": "somebody", "traceName": "/home/somebody/t.json"}
    kineto.write(LOOP.scenario(), tmp_path / "trace.json", header=private)
    slice_trace(tmp_path / "trace.json", tmp_path / "cut.json", (1, 4))
    text = (tmp_path / "cut.json").read_text()
    parsed = json.loads(text)
    assert parsed["traceprobe_slice"]["steps"] == "1:4"
    assert len(parsed["traceprobe_slice"]["source_sha256"]) == 64
    assert "node17" not in text
    assert "somebody" not in text


def test_an_nsight_slice_opens_in_sqlite_without_the_environment(tmp_path):
    nsight.write(LOOP.scenario(), tmp_path / "run.sqlite")
    nsight.edit(
        tmp_path / "run.sqlite",
        "CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)",
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'TOKEN=secret')",
        "INSERT INTO StringIds VALUES (987654, 'secret')",
    )
    slice_trace(tmp_path / "run.sqlite", tmp_path / "cut.sqlite", (1, 4))
    assert b"secret" not in (tmp_path / "cut.sqlite").read_bytes()
    connection = sqlite3.connect(tmp_path / "cut.sqlite")
    assert dict(connection.execute("SELECT * FROM traceprobe_slice"))["steps"] == "1:4"
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("steps", [(3, 3), (-1, 2), (50, 60)])
def test_steps_that_are_not_there_are_refused(tmp_path, steps):
    kineto.write(LOOP.scenario(), tmp_path / "trace.json")
    with pytest.raises(traceprobe.UsageError, match="has steps 0 to 7"):
        slice_trace(tmp_path / "trace.json", tmp_path / "cut.json", steps)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


def test_a_slice_of_a_damaged_trace_holds_its_good_part(tmp_path):
    kineto.write(LOOP.scenario(), tmp_path / "trace.json", gz=False)
    data = (tmp_path / "trace.json").read_bytes()
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(data[: len(data) * 9 // 10]))
    slice_trace(tmp_path / "trace.json.gz", tmp_path / "cut.json", (1, 4))
    assert list(accounts(tmp_path / "cut.json")) == ["step 1", "step 2", "step 3"]

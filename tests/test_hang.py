"""`traceprobe hang`: what dumps of the flight recorder say a run hangs in."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import socket
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from tests.flight_records import SCENARIOS, Run, absent, healthy, sizes, unmatched
from tests.hang_records import make_hang
from traceprobe.anonymise.redact import redact
from traceprobe.errors import DamagedInput, DamagedRecord
from traceprobe.hang.explain import explain
from traceprobe.ingest.nccl.flight_recorder import rank_in_name, read_flight_record
from traceprobe.records.hang import Hang


@pytest.fixture
def explained(tmp_path):
    """What is said of a run, of which some ranks have no dump."""

    def explained(run, *, but=(), form="pickle"):
        paths = run.write(tmp_path, but=but, form=form)
        found = explain([read_flight_record(path) for path in paths])
        assert Hang.from_json(found.to_json()) == found
        return found

    return explained


def codes(found):
    return [caution.code for caution in found.cautions]


def standings(found):
    """By rank, of the group that explains the others."""
    return {s.rank: s.where for s in found.groups[found.explained_by].standings}


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_hang_has_its_cause(explained, name, form):
    make, cause = SCENARIOS[name]
    found = explained(make(), form=form)
    assert found.cause == cause
    assert codes(found) == ([] if form == "pickle" else ["no-stacks"])
    assert ("train.py" in found.to_json()) == (form == "pickle")
    assert "secret-project" not in found.to_json()


def test_a_healthy_run(explained):
    found = explained(healthy())
    assert (found.title, found.explained_by) == ("No hang", None)
    assert found.headline == "All 4 ranks completed the same 5 collectives."
    assert found.groups[0].completed == 5


def test_an_absent_rank(explained):
    found = explained(absent())
    assert found.title == "Rank 2 is missing"
    assert "collective 4 of group default_pg" in found.headline
    assert "train.py:61 in train_step" in found.headline
    assert "collective 3" in found.points[0]
    assert standings(found) == {0: "waits", 1: "waits", 2: "absent", 3: "waits"}
    group = found.groups[0]
    assert (group.completed, group.stuck, group.listed) == (3, 4, True)


def test_a_rank_without_a_dump(explained):
    found = explained(absent(), but=[2])
    assert found.cause == "no-dump"
    assert found.without_dump == [2]
    assert standings(found)[2] == "no-dump"


def test_the_odd_rank_is_the_one_that_differs(explained):
    found = explained(sizes())
    assert standings(found) == {0: "waits", 1: "waits", 2: "waits", 3: "differs"}
    assert "ranks 0–2 issued all_reduce of 256 Float" in found.headline
    assert "rank 3 issued all_reduce of 128 Float" in found.headline


def test_a_rank_that_left_out_a_call_is_told(explained):
    found = explained(SCENARIOS["left_out"][0]())
    assert any("seems to have left out a call" in point for point in found.points)


def test_another_shape_of_the_same_length_is_no_difference(explained):
    run = Run(2)
    run.issue(0, state="started", size=[8, 4])
    run.issue(1, state="started", size=[32])
    assert explained(run).cause == "unfinished"


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter", "all_gather_v"])
def test_what_may_be_unequal_is_no_difference(explained, operation):
    run = Run(2)
    run.issue(0, operation, state="started", size=[8])
    run.issue(1, operation, state="started", size=[32])
    assert explained(run).cause == "unfinished"


def test_the_group_that_explains_the_others_comes_first(explained):
    found = explained(SCENARIOS["two_groups"][0]())
    assert found.title == "Rank 3 is missing"
    assert found.groups[found.explained_by].name == "2"
    assert {group.name: group.cause for group in found.groups} == {
        "0": "absent",
        "1": "none",
        "2": "absent",
    }
    assert any("waits for rank 2, which is in" in point for point in found.points)


def test_messages_without_partner(explained):
    found = explained(unmatched())
    (pair,) = found.pairs
    assert (pair.source, pair.target, pair.sends, pair.receives) == (0, 1, 1, 2)
    assert pair.line == "train.py(22): recv_forward"
    assert found.headline.startswith("Rank 1 waits for 2 messages from rank 0")


def test_what_the_ring_has_lost_is_not_missing(explained):
    """The recorder keeps the last entries only."""
    run = Run(2)
    for _ in range(50):
        run.all()
    run.entries[0] = run.entries[0][40:]
    run.entries[1] = run.entries[1][45:]
    found = explained(run)
    assert (found.cause, found.groups[0].completed) == ("none", 50)


def test_the_rank_is_in_the_name():
    assert rank_in_name("nccl_trace_rank_12") == 12
    assert rank_in_name("rank3.json") == 3
    assert rank_in_name("comm_lib_trace_rank_0.pickle") == 0
    assert rank_in_name("dump") is None


# The command


def test_the_command_writes_every_output(cli):
    absent().write(cli.folder)
    done = cli("hang", "nccl_trace_rank_*", "-o", "a.html", "-o", "a.json", "-o", "a.md").expect(0)
    assert done.out.startswith("Rank 2 is missing")
    page = (cli.folder / "a.html").read_text(encoding="utf-8")
    assert "never issued it" in page
    assert "/home/someone" not in page
    assert "train.py:61" in (cli.folder / "a.md").read_text(encoding="utf-8")
    cli("render", "a.json", "-o", "b.html").expect(0)
    assert (cli.folder / "b.html").read_text(encoding="utf-8") == page


def test_a_folder_and_its_json(cli):
    (cli.folder / "dumps").mkdir()
    absent().write(cli.folder / "dumps")
    absent().write(cli.folder / "dumps", form="json")
    (cli.folder / "dumps" / "notes1.json").write_text("{}")
    done = cli("hang", "dumps", "-o", "-").expect(0)
    assert json.loads(done.out)["title"] == "Rank 2 is missing"
    assert "second dump of rank 0" in done.err
    assert json.loads(done.out)["inputs"] == [f"nccl_trace_rank_{n}" for n in range(4)]


def test_a_redacted_record_has_no_names(explained):
    found = redact(explained(absent()))
    text = found.to_json()
    assert Hang.from_json(text) == found
    assert "train_step" not in text


TAMPERED = {
    "a group that is not there": ({"explained_by": 7}, "no group explains it"),
    "a hang without cause": ({"cause": "none"}, "a group hangs, and the run does not"),
    "a dump and none": ({"without_dump": [0]}, "a rank has a dump and none"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_record_is_refused(name):
    changes, said = TAMPERED[name]
    record = {**json.loads(make_hang().to_json()), **changes}
    with pytest.raises(DamagedRecord, match=said):
        Hang.from_json(json.dumps(record))


def test_a_dump_cut_short_costs_its_rank(cli):
    paths = absent().write(cli.folder)
    paths[2].write_bytes(paths[2].read_bytes()[:500])
    out = json.loads(cli("hang", "nccl_trace_rank_*", "-o", "-").expect(0).out)
    assert out["cause"] == "no-dump"
    assert out["cautions"][0]["code"] == "dump-lost"
    assert "is cut short" in out["cautions"][0]["message"]


class Runs:
    def __reduce__(self):
        return os.system, ("touch EXECUTED",)


REFUSED = {
    "nothing": b"",
    "text": b"hello",
    "another json": b'{"traceEvents": []}',
    "another pickle": pickle.dumps([1, 2, 3]),
    "a command": pickle.dumps({"version": "2.10", "entries": [Runs()], "pg_config": {}}),
    "cut short": pickle.dumps(absent().dump(0))[:300],
    "half of a json": b'{"version": "2.10", "entries": [',
    "gzip": gzip.compress(b"{}"),
    "another version": pickle.dumps({**absent().dump(0), "version": "7.1"}),
    "no version": pickle.dumps({"entries": []}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_dump_is_refused_in_one_line(cli, name):
    (cli.folder / "nccl_trace_rank_0").write_bytes(REFUSED[name])
    (line,) = cli("hang", "nccl_trace_rank_0", "-o", "a.html").expect(2).err.splitlines()
    assert line.startswith("traceprobe: nccl_trace_rank_0: ")
    assert cli.files() == {"nccl_trace_rank_0"}


def laughing(levels=40):
    """A list that holds 2 ** levels texts, in as many lists."""
    found = ["ha"]
    for _ in range(levels):
        found = [found, found]
    return found


@pytest.mark.parametrize("field", ["profiling_name", "process_group", "frames", "state"])
def test_what_would_be_endless_when_written_out_is_not(tmp_path, field):
    dump = absent().dump(0)
    dump["entries"] = [{**entry, field: laughing()} for entry in dump["entries"]]
    dump["pg_config"]["0"]["desc"] = laughing()
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump))
    assert len(explain([read_flight_record(tmp_path / "rank_0")]).to_json()) < 10_000


def test_many_groups_that_share_one_long_text(tmp_path):
    about = {"desc": "", "ranks": "[" + " " * 1_000_000 + "]"}
    dump = {**absent().dump(0), "pg_config": {str(n): about for n in range(100_000)}}
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump))
    with pytest.raises(DamagedInput, match="members of groups"):
        read_flight_record(tmp_path / "rank_0")


def test_other_misuse_is_refused(cli):
    (cli.folder / "empty").mkdir()
    (path,) = Run(1).write(cli.folder)
    assert "without a dump" in cli("hang", "empty").expect(2).err
    assert "is absent" in cli("hang", "nothing").expect(2).err
    assert "is given twice" in cli("hang", path.name, path.name).expect(2).err
    assert (
        "is an input" in cli("hang", path.name, "-o", "x.json", "-o", path.name).expect(2).err or 1
    )
    path.rename(cli.folder / "dump")
    assert "no rank is in its name" in cli("hang", "dump").expect(2).err


# Programs that hang


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize(
    ("scenario", "cause", "line"),
    [
        ("absent", "absent", "hanging_program.py(24): train_step"),
        ("circle", "circle", "hanging_program.py(40): hang"),
    ],
)
def test_a_real_hang_is_explained(tmp_path, scenario, cause, line):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = [sys.executable, str(ROOT / "tests" / "hanging_program.py"), scenario]
    started = [
        subprocess.Popen(
            [*program, str(rank), "2", port, str(tmp_path)],
            env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000"},
        )
        for rank in range(2)
    ]
    paths = [tmp_path / f"nccl_trace_rank_{rank}" for rank in range(2)]
    try:
        while not all(path.exists() for path in paths):
            assert all(process.poll() is None for process in started)
            time.sleep(0.1)
    finally:
        for process in started:
            process.kill()
            process.wait()
    found = explain([read_flight_record(path) for path in paths])
    assert found.cause == cause
    assert line in found.to_json()
    assert codes(found) == ["gloo"]

"""Many files of one run: given as folders and patterns, read at once, and damaged."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import kineto
from tests.cli_runner import (
    MODULE,
    environment,
    interruptible,
    loop_of_rank,
    needs_workers_of_dask,
    spawn,
    write_trace,
)
from tests.conftest import ROOT
from tests.processes import needs_proc
from traceprobe.options import Options
from traceprobe.pipeline import parallel as workers
from traceprobe.pipeline.dask import joined
from traceprobe.pipeline.trace_part import Lost

PAIR = [ROOT / "sample_traces" / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)]


@pytest.fixture
def run(tmp_path):
    """A folder with the files of four ranks and what else lies in such folders."""
    folder = tmp_path / "run"
    folder.mkdir()
    for number in range(4):
        write_trace(folder / f"rank{number}.json.gz", loop_of_rank(number))
    (folder / "notes.txt").write_text("Dear diary")
    (folder / "report.json").write_text('{"ablation": null}')
    (folder / "empty.json").touch()
    (folder / ".hidden.json").write_text("{")
    (folder / "older").mkdir()
    write_trace(folder / "older" / "rank0.json", loop_of_rank(0))
    return folder


def ranks_of(done):
    report = json.loads(done.expect(0).out)
    return [rank["rank"] for rank in report["ranks"]], report


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(tmp_path):
    texts = [
        spawn("analyze", *PAIR, "-o", "-", "--jobs", jobs, cwd=tmp_path).expect(0).out
        for jobs in (1, 2, 7)
    ]
    assert texts[0] == texts[1] == texts[2]
    assert json.loads(texts[0])["run"]["collectives_matched"] > 0


@pytest.mark.slow
def test_dask_changes_no_byte(tmp_path):
    needs_workers_of_dask()
    here = spawn("analyze", *PAIR, "-o", "-", "--jobs", 1, cwd=tmp_path).expect(0).out
    inputs = (PAIR[0], f"file://{PAIR[1]}")
    done = spawn("analyze", *inputs, "-o", "-", "--dask", "local:2", cwd=tmp_path).expect(0)
    assert done.out == here
    done = spawn("analyze", *PAIR, "--step", "no such", "--dask", "local:1", cwd=tmp_path)
    assert "matches 0 ranges" in done.expect(2).err


@pytest.mark.slow
@pytest.mark.parametrize("address", ["local:", "local:0", "tcp://127.0.0.1:1", "nonsense://x"])
def test_a_cluster_that_is_not_there(tmp_path, address):
    pytest.importorskip("distributed", reason="Dask is not installed")
    variables = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    command = ("analyze", *PAIR, "-o", "-", "--dask", address)
    assert f"--dask {address}" in spawn(*command, cwd=tmp_path, env=variables).expect(2).err


def test_lists_of_parts_are_joined_in_any_order():
    placed = [(n, Lost(str(n), "")) for n in range(7)]
    left = joined([joined([placed[4:], placed[:2]]), placed[2:4]])
    assert left == joined([placed[4:], joined([placed[:2], placed[2:4]])]) == placed


def test_progress_is_told_within_the_files():
    told = []
    workers._read(PAIR[1], Options(), None, told.append)
    assert told == [1.0]
    heard = {}
    workers.read_all(
        PAIR, Options(), None, 2, lambda at, part: heard.setdefault(at, []).append(part)
    )
    assert sorted(heard) == [0, 1]
    for fractions in heard.values():
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


def test_a_folder_is_the_traces_in_it(cli, run):
    done = cli("analyze", "run", "-o", "-", "--jobs", 1)
    found, report = ranks_of(done)
    assert found == [0, 1, 2, 3]
    assert [i["name"] for i in report["inputs"]] == [f"rank{n}.json.gz" for n in range(4)]
    assert done.err == (
        "run: left out, as they are no traces: empty.json, notes.txt, older, report.json\n"
    )
    assert cli("analyze", "run", "-q", "-o", "-").expect(0).err == ""


def test_a_pattern_is_the_files_that_fit_it_in_natural_order(cli, run):
    (run / "rank3.json.gz").rename(run / "rank10.json.gz")
    found, report = ranks_of(cli("analyze", "run/rank*.gz", "-o", "-", "--jobs", 1))
    assert found == [0, 1, 2, 3]
    assert report["inputs"][-1]["name"] == "rank10.json.gz"


def test_a_file_whose_name_looks_like_a_pattern(cli):
    write_trace(cli.folder / "run[1].json")
    _, report = ranks_of(cli("analyze", "run[1].json", "-o", "-"))
    assert report["inputs"][0]["name"] == "run[1].json"


@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("no*.json", "no*.json: no file fits this pattern"),
        ("empty", "empty: is a directory without a trace"),
        ("older", "older: is a directory without a trace"),
        ("absent", "absent: is absent"),
    ],
)
def test_inputs_that_are_nothing(cli, argument, part):
    (cli.folder / "empty").mkdir()
    (cli.folder / "older" / "run").mkdir(parents=True)
    write_trace(cli.folder / "older" / "run" / "trace.json")
    done = cli("analyze", argument).expect(2)
    assert part in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_damaged_rank_costs_that_rank(cli, run, jobs):
    (run / "rank2.json.gz").write_bytes((run / "rank2.json.gz").read_bytes()[:11] + b"\0" * 99)
    names = [f"run/rank{n}.json.gz" for n in range(4)]
    done = cli("analyze", *names, "-o", "-", "--jobs", jobs)
    found, report = ranks_of(done)
    assert found == [0, 1, 3]
    (lost,) = report["quality"]["lost"]
    assert lost["name"] == "rank2.json.gz"
    (warning,) = [w for w in report["quality"]["warnings"] if w["code"] == "rank-lost"]
    assert lost["reason"] in warning["message"]
    assert lost["reason"] in done.err
    assert [rank["input"] for rank in report["ranks"]] == [0, 1, 2]
    redacted = cli("analyze", *names, "-q", "-o", "-", "--jobs", jobs, "--redact").expect(0).out
    assert "rank2.json.gz" not in redacted


def test_nothing_but_damaged_ranks_is_an_error(cli):
    for name in ("a.json", "b.json", "c.json"):
        (cli.folder / name).write_text('{"traceEvents": []}')
    done = cli("analyze", "a.json", "b.json", "c.json", "-o", "r.json", "--jobs", 1).expect(2)
    assert "a.json: a trace without any event" in done.err
    assert "2 more inputs" in done.err
    assert not (cli.folder / "r.json").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_two_files_that_claim_one_rank(cli, jobs):
    for name, steps in {"a": 5, "b": 6}.items():
        write_trace(cli.folder / f"{name}.json", replace(loop_of_rank(3), steps=steps))
    done = cli("analyze", "a.json", "b.json", "--jobs", jobs).expect(2)
    assert "a.json and b.json both say that they are rank 3" in done.err


def test_an_option_that_makes_no_sense_is_no_damage(cli, run):
    names = [run / f"rank{n}.json.gz" for n in range(2)]
    done = cli("analyze", *names, "--step", "no such range", "--jobs", 2).expect(2)
    assert "matches 0 ranges" in done.err


def children(pid):
    """Processes that a process has started and that read files for it."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in told(task / "children").split():
            line = told(Path("/proc", child.decode(), "cmdline"))
            if (
                b"traceprobe.system.child" in line or b"spawn_main" in line
            ):  # the other one is Dask's
                found.append(int(child))
    return found


def told(path):
    """What the kernel tells of a process; nothing if it has ended meanwhile."""
    with suppress(OSError):
        return path.read_bytes()
    return b""


def reader_of(path, process):
    """The process that is some way into a file."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        for pid in children(process.pid):
            with suppress(OSError):  # closed meanwhile
                if path in [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]:
                    return pid
        time.sleep(0.002)
    return pytest.fail(f"nobody reads {path}: {process.poll()}")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file that takes some seconds to read, and to write."""
    path = tmp_path_factory.mktemp("large") / "big.json"
    kineto.write_repeated(path, kineto.dumps(loop_of_rank(1).scenario()), 40_000_000)
    return path


@pytest.fixture(params=[["--jobs", "2"]], ids=" ".join)
def reading(tmp_path, large, request):
    """A command that reads a small and a large file in two processes, and who reads the large."""
    if "--dask" in request.param:
        needs_workers_of_dask()
    big = tmp_path / "big.json"
    big.hardlink_to(large)
    write_trace(tmp_path / "small.json", loop_of_rank(0))
    process = subprocess.Popen(
        [*MODULE, "analyze", "small.json", "big.json", "-o", "r.json", *request.param],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    with process:
        try:
            yield process, reader_of(big, process)
        finally:
            process.kill()


@pytest.mark.slow
@needs_proc
def test_a_process_that_dies_costs_the_file_that_it_read(tmp_path, reading):
    process, reader = reading
    os.kill(reader, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "big.json: the process that read it was killed" in err.decode()
    report = json.loads((tmp_path / "r.json").read_text())
    assert [i["name"] for i in report["inputs"]] == ["small.json"]
    assert [entry["name"] for entry in report["quality"]["lost"]] == ["big.json"]


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("reading", [["--dask", "local:2"]], indirect=True, ids=" ".join)
def test_what_a_worker_of_dask_did_is_done_again_when_it_dies(tmp_path, reading):
    process, reader = reading
    os.kill(reader, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    report = (tmp_path / "r.json").read_text()
    names = ("small.json", "big.json")
    assert [i["name"] for i in json.loads(report)["inputs"]] == list(names)
    assert spawn("analyze", *names, "-o", "-", cwd=tmp_path).expect(0).out == report


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(
    "reading", [["--jobs", "2"], ["--dask", "local:2"]], indirect=True, ids=" ".join
)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_no_process_outlives_the_command(tmp_path, reading, number, code):
    process, reader = reading
    started = children(process.pid)
    assert reader in started
    if number == signal.SIGINT:  # a terminal interrupts all of them
        for pid in started:
            status = Path(f"/proc/{pid}/status").read_text()
            blocked = int(re.search(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)[1], 16)
            assert blocked & 1 << (signal.SIGINT - 1)
            os.kill(pid, number)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, b"")
    assert b"Traceback" not in err
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.01)
    assert {p.name for p in tmp_path.iterdir()} == {"small.json", "big.json"}

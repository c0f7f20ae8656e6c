"""`traceprobe watch` on real programs: what they are held up by, and every way to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.cli_runner import MODULE, environment, spawn

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pytorch")]

LOOP = """
import gc, os, signal, sys, time, tests.without_compiler, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""
WITH_COMPILER = LOOP.replace("tests.without_compiler, ", "")
"""As programs are, whose optimizers import the compiler of PyTorch."""


@pytest.fixture
def watched(tmp_path):
    """Runs a loop and returns how it ended and the record of it, None without one."""

    def run(code, *options, loop=LOOP, **settings):
        (tmp_path / "train.py").write_text(loop + textwrap.dedent(code))
        arguments = ("watch", "-f", "-o", "w.json", *options, "--", sys.executable, "train.py")
        done = spawn(*arguments, cwd=tmp_path, **settings)
        record = tmp_path / "w.json"
        assert not list(tmp_path.glob(".recording-*"))
        return done, json.loads(record.read_text()) if record.exists() else None

    return run


def causes(record):
    return {event["cause"]: event for event in record["events"]}


def test_pauses_are_found_and_named(watched):
    done, record = watched(
        """
        heap = [[n] for n in range(1_500_000)]
        gc.disable()
        for number in range(200):
            step()
            if number == 120:
                gc.collect()
            if number % 40 == 39:
                torch.save(torch.zeros(4_000_000), "model.pt")
                time.sleep(0.0)
        print("trained")
        """
    )
    assert (done.code, done.out) == (0, "trained\n")
    assert record["steps"] == 200
    assert record["ended"] == "ended by itself"
    found = causes(record)
    assert found["garbage-collection"]["longest_step"] == 120
    assert set(found["checkpoint"]["steps"]) <= {39, 79, 119, 159}
    assert "garbage collection" in done.err
    assert record["ranks"][0]["ended"] is True


def test_a_slow_worker_is_named(watched):
    _, record = watched(
        """
        from torch.utils.data import DataLoader, Dataset, get_worker_info

        class Rows(Dataset):
            def __len__(self):
                return 80
            def __getitem__(self, index):
                time.sleep(0.2 if get_worker_info().id == 1 and index > 40 else 0.001)
                return index

        for _ in DataLoader(Rows(), batch_size=None, num_workers=2):
            step()
        """
    )
    worker = causes(record)["loader-worker"]
    assert worker["rank"] is None
    assert {step % 2 for step in worker["steps"]} in ({0}, {1})
    assert record["ranks"][0]["wait_share"] > 0.2


def test_an_evaluation_is_named(watched):
    _, record = watched(
        """
        from torch.utils.data import DataLoader, TensorDataset
        train = DataLoader(TensorDataset(torch.zeros(100, 8)))
        test = DataLoader(TensorDataset(torch.zeros(10, 8)))
        for _ in range(4):
            for number, _ in enumerate(train):
                step()
                if number % 25 == 20:
                    for _ in test:
                        time.sleep(0.015)
        """
    )
    event = causes(record)["evaluation"]
    assert event["count"] >= 12
    assert event["every_steps"] == 25


@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        ("sys.exit(3)", 3, "ended with status 3"),
        ("raise SystemExit(0)", 0, "ended by itself"),
        ("raise MemoryError", 1, "ended with status 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
        ("os._exit(5)", 5, "ended with status 5"),
    ],
)
def test_the_end_of_the_program_is_told_and_passed_on(watched, last, code, words):
    done, record = watched(f"for _ in range(60): step()\ntime.sleep(1)\n{last}")
    assert done.code == code
    assert record["exit_code"] == code
    assert record["ended"] == words
    assert record["steps"] == 60


def test_a_program_that_catches_the_end_runs_on(watched):
    done, record = watched(
        """
        for number in range(60):
            try:
                step()
                if number % 20 == 5:
                    sys.exit(9)
            except SystemExit:
                pass
        """
    )
    assert (done.code, record["steps"]) == (0, 60)


def test_children_of_a_fork_are_not_watched(watched):
    done, record = watched(
        """
        for number in range(60):
            step()
            if number == 30:
                child = os.fork()
                if not child:
                    step(); gc.collect()
                    os._exit(0)
                os.waitpid(child, 0)
        """
    )
    assert (done.code, record["steps"], len(record["ranks"])) == (0, 60, 1)


def signals_of(pid):
    """What a process and its children block, ignore and catch, as Linux tells."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        number: [
            line
            for line in Path(f"/proc/{number}/status").read_text().splitlines()
            if line.startswith(("Name", "Sig", "ShdPnd"))
        ]
        for number in (str(pid), *children)
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_to_the_program_and_the_run_is_told(tmp_path, number):
    (tmp_path / "train.py").write_text(LOOP + "while True: step(); print('.', flush=True)")
    process = subprocess.Popen(
        [*MODULE, "watch", "-q", "-o", "w.json", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    for _ in range(100):
        process.stdout.readline()
    time.sleep(1)
    os.kill(process.pid, number)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        told = signals_of(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"{number.name} was lost: {told}")
    record = json.loads((tmp_path / "w.json").read_text())
    assert process.returncode == record["exit_code"] == 128 + number
    assert signal.Signals(number).name in record["ended"]
    assert record["steps"] > 50


def test_a_program_without_updates_leaves_no_record(watched):
    done, record = watched("print('nothing')")
    assert (done.code, record) == (2, None)
    assert "after no step that an update of a PyTorch optimizer ends" in done.err
    done, record = watched("sys.exit(3)")
    assert (done.code, record) == (3, None)
    assert done.err.splitlines()[-1] == "traceprobe: the program ended with status 3 after no step"
    done, record = watched("step()")
    assert (done.code, record) == (2, None)
    assert "after 1 step that an update of a PyTorch optimizer ends, and it takes 2" in done.err


def test_the_program_has_standard_input(tmp_path):
    (tmp_path / "train.py").write_text(LOOP + "for _ in range(30): step()\nprint(input())")
    done = subprocess.run(
        [*MODULE, "watch", "-q", "-o", "w.json", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        input=b"typed\n",
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, b"typed\n")


def test_standard_output_is_the_programs(tmp_path):
    done = spawn("watch", "-o", "-", "--", "true", cwd=tmp_path)
    assert (done.code, "standard output is the program's" in done.err) == (2, True)


def test_metrics_are_there_while_the_run_goes_on(watched, tmp_path):
    _, record = watched(
        """
        for number in range(300):
            step()
            if number == 100:
                torch.save(torch.zeros(1_000_000), "model.pt")
        assert os.path.exists("run.prom") and os.path.getsize("run.jsonl")
        """,
        *("--prometheus", "run.prom", "--jsonl", "run.jsonl"),
        loop=WITH_COMPILER,
    )
    assert record["exit_code"] == 0
    text = (tmp_path / "run.prom").read_text()
    assert 'traceprobe_steps_total{rank="0"} 300\n' in text
    assert 'traceprobe_events_total{rank="0",cause="checkpoint"} 1\n' in text
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    saved = next(line for line in lines if line.get("event") == "checkpoint")
    assert (saved["step"], saved["rank"]) == (100, 0)
    assert lines[-1]["steps"] == 300


SLOW_TURNS = """
for number in range(500):
    step()
    if number % 50 == 30:
        time.sleep(0.3)
"""


def test_a_rhythm_is_captured_at_its_next_turn(watched, tmp_path):
    done, record = watched(SLOW_TURNS, "--captures", "6")
    assert done.code == 0
    (rhythm,) = [each for each in record["captures"] if "every 50th step" in each["why"]]
    assert (rhythm["reason"], rhythm["step"] % 50) == ("rhythm", 28)  # the long one is 30
    assert len(record["captures"]) <= 6
    assert "USDT" not in done.err
    for capture in record["captures"]:
        assert capture["bound"] is not None
        assert (tmp_path / "w-captures" / capture["file"]).stat().st_size > 1_000
    covered = {each["step"] + n for each in record["captures"] for n in range(each["steps"])}
    found = {step for event in record["events"] for step in event["steps"]}
    assert not covered & found


def test_a_profiler_of_the_programs_own_comes_first(watched, tmp_path):
    done, record = watched(
        """
        from torch.profiler import profile
        for number in range(120):
            step()
            if number == 42:  # in the middle of one of ours
                with profile() as theirs:
                    for _ in range(60):
                        step()
        assert any(event.name == "aten::addmm" for event in theirs.events())
        """,
        *("--captures", "3", "--every", "40"),
    )
    assert (done.code, record["steps"]) == (0, 180)
    assert record["captures"]
    assert min(each["step"] for each in record["captures"]) >= 103
    kept = {path.name for path in (tmp_path / "w-captures").iterdir()}
    assert kept == {each["file"] for each in record["captures"]}


def test_a_killed_program_leaves_the_captures_it_had_made(watched):
    done, record = watched(
        """
        for number in range(100):
            step()
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        *("--captures", "1", "--every", "60"),
    )
    assert done.code == 137
    assert [each["step"] for each in record["captures"]] == [60]


def test_captures_that_are_there_are_not_overwritten(tmp_path):
    (tmp_path / "w-captures").mkdir()
    (tmp_path / "w-captures" / "step-7.json.gz").write_bytes(b"kept")
    arguments = ("watch", "-o", "w.json", "--captures", "1", "--", sys.executable, "train.py")
    done = spawn(*arguments, cwd=tmp_path)
    assert (done.code, "has captures" in done.err) == (2, True)
    done = spawn("watch", "-o", "v.json", "--every", "5", "--", "true", cwd=tmp_path)
    assert (done.code, "--captures" in done.err) == (2, True)

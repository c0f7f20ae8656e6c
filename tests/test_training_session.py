"""What all integrations of trainers do, on loops of PyTorch's own: when, where, and every end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.cli_runner import environment, spawn
from traceprobe.integrations.analysis import Outcome, keep_leftovers
from traceprobe.integrations.recording_requests import AHEAD_STEPS, LOOK_S, Requests
from traceprobe.integrations.settings import Settings


def requests(folder, rank=0, ranks=1, said=None, **settings):
    asked = Settings(**{"every": 0, "output": folder, **settings})
    return Requests(asked, rank, ranks, [].append if said is None else said.append)


def unknown():
    """The pace of a training of few steps."""
    return 0.0


def due_at(asked, steps, first=0):
    asked.open(first)
    found = [done for done in range(first, steps) if asked.due(done, unknown)]
    asked.close()
    return found


def test_intervals_are_those_of_the_whole_training(tmp_path):
    assert due_at(requests(tmp_path, every=10), 35) == [10, 20, 30]
    assert due_at(requests(tmp_path, every=10), 35, first=10) == [20, 30]
    assert due_at(requests(tmp_path), 35) == []


def test_two_updates_in_a_step_do_not_jump_over_a_recording(tmp_path):
    asked = requests(tmp_path, every=5)
    asked.open(0)
    assert [done for done in range(0, 30, 2) if asked.due(done, unknown)] == [6, 10, 16, 20, 26]


def test_a_file_asks_once_and_is_taken(tmp_path):
    asked = requests(tmp_path)
    asked.open(0)
    (tmp_path / "record").touch()
    time.sleep(LOOK_S)
    assert [done for done in range(5) if asked.due(done, unknown)] == [0]
    assert list(tmp_path.iterdir()) == []


def test_a_signal_asks_and_its_handler_is_put_back(tmp_path):
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append("theirs"))
    try:
        theirs = signal.getsignal(signal.SIGUSR2)
        asked = requests(tmp_path, signal=signal.SIGUSR2)
        asked.open(0)
        assert not asked.due(0, unknown)
        signal.raise_signal(signal.SIGUSR2)
        assert [done for done in range(1, 5) if asked.due(done, unknown)] == [1]
        assert heard == ["theirs"]
        asked.close()
        assert signal.getsignal(signal.SIGUSR2) is theirs
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_thread_that_gets_no_signals_says_what_else_asks(tmp_path):
    said = []
    asked = requests(tmp_path, said=said, signal=signal.SIGUSR2)
    thread = threading.Thread(target=asked.open, args=(0,))
    thread.start()
    thread.join()
    assert said[0].endswith(f"touch {tmp_path / 'record'}")
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.parametrize("asking", [0, 1])
def test_ranks_begin_with_the_same_step_whoever_is_asked(tmp_path, asking):
    ranks = [requests(tmp_path, rank, 2, signal=signal.SIGUSR2) for rank in (0, 1)]
    for rank in (1, 0):  # the signal reaches the one that has opened last
        ranks[rank if asking == 0 else 1 - rank].open(0)
    signal.raise_signal(signal.SIGUSR2)
    found = {0: [], 1: []}
    for done in range(2 * AHEAD_STEPS + 5):
        for rank in (0, 1):
            found[rank] += [done] if ranks[rank].due(done, unknown) else []
        time.sleep(1.1 * LOOK_S if done < 3 else 0)
    for rank in (0, 1) if asking == 1 else (1, 0):
        ranks[rank].close()
    assert found[0] == found[1]
    assert len(found[0]) == 1
    assert found[0][0] >= AHEAD_STEPS


@pytest.mark.parametrize(
    "settings", [{"every": -1}, {"steps": 0}, {"steps": 1_000}, {"wait_s": -1.0}], ids=str
)
def test_settings_that_make_no_sense(tmp_path, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Settings(**{"every": 1, "output": tmp_path, **settings})


def test_numbers_have_names_that_loggers_group(tmp_path):
    outcome = Outcome(7, tmp_path, "io", "slow", 12.5, {"io": 0.5, "compute": 0.25})
    assert outcome.numbers() == {
        "traceprobe/step": 7,
        "traceprobe/step_ms": 12.5,
        "traceprobe/share_io": 0.5,
        "traceprobe/share_compute": 0.25,
    }
    assert "traceprobe/step_ms" not in outcome._replace(step_ms=None).numbers()


def test_what_a_killed_training_left_is_kept_where_it_is_whole(tmp_path):
    for name in ("rank0.json.gz", "rank11.json.gz", ".rank1.json.gz", ".rank1.json.gz.json"):
        for step in ("step-5", "step-6"):
            path = tmp_path / ".recording" / step / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if step == "step-5" or name.startswith("."):
                path.touch()
    (tmp_path / "step-5").mkdir()
    keep_leftovers(tmp_path)
    assert files(tmp_path) == ["step-5-2/rank0.json.gz", "step-5-2/rank11.json.gz"]
    assert not (tmp_path / ".recording").exists()
    keep_leftovers(tmp_path)


def test_what_a_training_imports_is_light():
    code = (
        "import sys, traceprobe.integrations.training_session as s;"
        "sys.exit(bool({'torch', 'polars', 'numpy', 'msgspec', 'transformers'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


LOOP = """
import os, signal, sys, threading, time, tests.without_compiler, torch
from pathlib import Path
from traceprobe.integrations.settings import Settings
from traceprobe.integrations.training_session import TrainingSession

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
logged = []

def new(rank=0, ranks=1, **settings):
    settings = {"every": 0, "output": Path("profiles"), "steps": 2, **settings}
    return TrainingSession(Settings(**settings), rank, ranks, logged.append)

def train(session, steps, before=lambda done: None):
    session.begin(0)
    for done in range(steps):
        before(done)
        session.step_begins()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step_ended(done + 1)
    session.end()
"""
slow = pytest.mark.slow
torch_only = pytest.mark.usefixtures("pytorch")


@pytest.fixture
def run(tmp_path):
    def run(code, *arguments):
        (tmp_path / "train.py").write_text(LOOP + textwrap.dedent(code))
        return spawn("train.py", *arguments, cwd=tmp_path, command=(sys.executable,))

    return run


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


RECORDED = ("rank0.json.gz", "report.html", "report.json")


@slow
@torch_only
def test_a_recording_is_named_analysed_and_logged(run, tmp_path):
    done = run(
        """
        train(new(every=20), 30)
        train(new(every=20), 23)  # again, and to the middle of the recording
        print(*[outcome.folder.name for outcome in logged], "KINETO_LOG_LEVEL" in os.environ)
        """
    ).expect(0)
    assert done.out == "step-20 step-20-2 False\n"
    folders = ("step-20", "step-20-2")
    assert files(tmp_path / "profiles") == sorted(f"{f}/{n}" for f in folders for n in RECORDED)
    assert [line.split(":")[:2] for line in done.err.splitlines()] == [
        ["traceprobe", f" step {step}"] for step in (20, 20)
    ]
    reports = [json.loads((tmp_path / "profiles" / f / "report.json").read_text()) for f in folders]
    used = [
        [each["label"] for each in report["ranks"][0]["iterations"] if each["used"]]
        for report in reports
    ]
    assert used[0] == ["step 22", "step 23", "step 24"]  # the first one under the profiler settles
    assert used[1] == ["step 22", "step 23"]
    report = reports[0]
    assert report["quality"]["observer_effect"]["unprofiled_step_ms"] > 0


@slow
@torch_only
def test_an_error_in_the_middle_of_a_recording_leaves_nothing(run, tmp_path):
    done = run(
        """
        def fail(done):
            if done == 7:
                raise RuntimeError("of the training")
        train(new(every=5), 20, fail)
        """
    )
    assert done.code == 1
    assert done.err.splitlines()[-1] == "RuntimeError: of the training"
    assert "traceprobe:" not in done.err
    assert list((tmp_path / "profiles").iterdir()) == []


@slow
@torch_only
def test_an_error_after_a_recording_loses_only_the_report(run, tmp_path):
    done = run(
        """
        def fail(done):
            if done == 9:
                raise RuntimeError("of the training")
        train(new(every=5), 20, fail)
        """
    )
    assert done.code == 1
    (said,) = [line for line in done.err.splitlines() if line.startswith("traceprobe: ")]
    assert "was not analysed" in said
    (trace,) = files(tmp_path / "profiles")
    assert trace.endswith("step-5/rank0.json.gz")
    assert said.endswith(f"; to do it: traceprobe analyze profiles/{Path(trace).parent}")
    spawn("analyze", tmp_path / "profiles" / trace, "-o", "r.json", cwd=tmp_path).expect(0)


@slow
@torch_only
def test_what_stands_in_the_way_is_said_once_and_the_training_goes_on(run, tmp_path):
    done = run(
        """
        session = new(every=5)
        with torch.profiler.profile() as theirs:  # since before
            train(session, 12)
        print(len(theirs.key_averages()) > 0)

        later = torch.profiler.profile()
        def start(done):
            if done == 7:
                later.start()
        train(new(every=5), 9, start)
        later.stop()
        print(any(event.key == "aten::addmm" for event in later.key_averages()))

        paused = new(every=5, steps=3)
        train(paused, 12, lambda done: paused.interrupted() if done == 7 else None)
        endless = new(every=5, steps=3)
        train(endless, 9, lambda done: endless.interrupted())
        train(new(every=100), 5)
        Path("a file").touch()
        train(new(every=2, output=Path("a file/profiles")), 9)
        thread = threading.Thread(target=train, args=(new(every=5), 9))
        thread.start()
        thread.join()
        print(*[outcome.folder.name for outcome in logged])
        """
    ).expect(0)
    assert done.out == "True\nTrue\nstep-7 step-5\n"
    said = [line for line in done.err.splitlines() if line.startswith("traceprobe: ")]
    texts = [line.removeprefix("traceprobe: ") for line in said if ": step " not in line]
    beginnings = (
        "the program runs a PyTorch profiler",
        "the program has started a PyTorch profiler",
        "no recording: 3 times in a row",
        "no recording was made: the training had 5 steps",
        "no more recordings are made, the training goes on: NotADirectoryError",
    )
    assert len(texts) == len(beginnings), texts
    assert all(text.startswith(b) for text, b in zip(texts, beginnings, strict=True)), texts
    assert files(tmp_path / "profiles") == sorted(
        f"{folder}/{name}" for folder in ("step-5", "step-7") for name in RECORDED
    )


@slow
@torch_only
def test_ranks_record_the_same_steps_into_one_report(tmp_path):
    code = """
    rank = int(sys.argv[1])
    Path(f"ready{rank}").touch()
    while not Path(f"ready{1 - rank}").exists():
        time.sleep(0.001)
    def ask(done):
        time.sleep(0.02)
        if done == 20 and rank == 0:
            Path("profiles/record").touch()
    train(new(rank, 2), 200, ask)
    """
    (tmp_path / "train.py").write_text(LOOP + textwrap.dedent(code))
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py", str(rank)],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said[1] == ""
    (folder,) = (tmp_path / "profiles").iterdir()
    assert files(folder) == ["rank0.json.gz", "rank1.json.gz", "report.html", "report.json"]
    report = json.loads((folder / "report.json").read_text())
    labels = [[each["label"] for each in rank["iterations"]] for rank in report["ranks"]]
    assert len(labels) == 2
    assert labels[0] == labels[1]

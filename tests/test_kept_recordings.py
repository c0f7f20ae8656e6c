"""A recording that is complete is kept, and takes the old one's place as a whole."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys

import pytest

from tests.cli_runner import MODULE, interruptible, spawn
from tests.cli_runner import environment as clean
from tests.processes import wait_until
from traceprobe.capture.process.environment import program_environment
from traceprobe.capture.profiler.other_profilers import OWN_PROFILER, OtherProfilers
from traceprobe.capture.recording import run_recording
from traceprobe.capture.recording.recording_files import deliver_recording, recording_files
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.errors import UsageError

FAST = ("--warmup", "1", "--most-warmup", "1", "--calibrate", "2", "--active", "3")
RANK = ("rank{}.json.gz", "rank{}.traceprobe.json")
NAMES = {"rank0.json.gz", "rank0.traceprobe.json", "report.html", "report.json"}
TRAIN = """
import os, signal, sys, tests.without_compiler, torch
from torch.autograd import profiler
from torch.profiler import ProfilerActivity, profile, schedule

CPU = [ProfilerActivity.CPU]
torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(2, 16)).sum().backward()
    optimizer.step()
def train(steps=100, each=lambda: None):
    for _ in range(steps):
        step()
        each()
"""


@pytest.fixture
def record(pytorch, tmp_path):
    """Records a program that goes on as given; everything is in a folder of its own."""

    def run(text, *options):
        (tmp_path / "train.py").write_text(TRAIN + text)
        program = ("--", sys.executable, "train.py")
        return spawn("profile", "-o", "out", *FAST, *options, *program, cwd=tmp_path)

    return run


def listed(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_program_that_changes_its_folder_is_recorded(record, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    record("os.chdir('elsewhere'); train()").expect(0)
    assert listed(tmp_path / "out") == NAMES
    assert listed(tmp_path / "elsewhere") == set()


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_no_variable_and_no_argument_is_in_any_file(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN + "train()")
    program = ("env", "HF_TOKEN=canary-token", sys.executable, "train.py", "--key=canary-key")
    spawn("profile", *FAST, "--", *program, cwd=tmp_path).expect(0)
    out = tmp_path / "traceprobe-train"
    assert listed(out) == NAMES
    sidecar = json.loads((out / "rank0.traceprobe.json").read_text())
    assert sidecar["workload"] == {"name": "train"}
    for path in out.iterdir():
        data = path.read_bytes()
        assert b"canary" not in (gzip.decompress(data) if path.suffix == ".gz" else data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "how"),
    [
        ("sys.exit('cleanup failed')", "the program ended with status 1; its last lines:\n"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the program was killed by SIGSEGV"),
    ],
    ids=["status", "signal"],
)
def test_a_complete_recording_outlives_a_program_that_fails_afterwards(record, tmp_path, ends, how):
    done = record(f"try: train()\nfinally: {ends}", "-q").expect(0)
    assert done.err.startswith(f"the recording was complete when {how}")
    assert listed(tmp_path / "out") == NAMES
    assert json.loads((tmp_path / "out" / "report.json").read_text())["verdict"]


@pytest.mark.slow
def test_a_program_that_does_not_let_itself_be_ended_is_recorded_once(record, tmp_path):
    stubborn = "try: step()\n    except SystemExit: refused += 1"
    record(f"refused = 0\nfor _ in range(50):\n    {stubborn}\nassert refused > 9").expect(0)
    assert listed(tmp_path / "out") == NAMES


@pytest.mark.slow
def test_a_program_that_would_train_for_days_is_ended(pytorch, tmp_path, monkeypatch):
    monkeypatch.setattr(run_recording, "PATIENCE_S", 1.0)
    program = tmp_path / "train.py"
    program.write_text(f"{TRAIN}\nwhile True:\n    try: step()\n    except SystemExit: pass\n")
    (tmp_path / "out").mkdir()
    plan = RecordingPlan(warmup=1, most_warmup=1, calibrate=2, active=3)
    notes = []
    request = run_recording.RecordingRequest([sys.executable, str(program)], plan)
    run_recording.run_recording(request, tmp_path / "out", lambda _: None, notes.append)
    assert notes == ["the program went on for 1 s after its last step, and was ended"]
    assert {path.name for path in (tmp_path / "out").iterdir()} < NAMES


@pytest.mark.slow
def test_what_is_not_complete_is_not_kept(record, tmp_path):
    done = record("train(5); os.kill(os.getpid(), signal.SIGABRT)").expect(2)
    assert "the program was killed by SIGABRT" in done.err
    assert not (tmp_path / "out").exists()


def old_recording(folder):
    """Two ranks of an earlier run, an ablation and a report, beside files of the user's own."""
    folder.mkdir()
    ours = [name.format(rank) for rank in (0, 1) for name in RANK]
    ours += ["report.html", "report.json", "bench.json", "run.sqlite", "run.nsys-rep"]
    theirs = ["rank7.json.gz", "mine.json.gz", "notes.traceprobe.json", "other.sqlite", "a.txt"]
    for name in (*ours, *theirs):
        (folder / name).write_text("old")
    return set(ours), set(theirs)


@pytest.mark.slow
def test_a_new_recording_takes_the_place_of_all_of_the_old_one(record, tmp_path):
    out = tmp_path / "out"
    ours, theirs = old_recording(out)
    record("raise SystemExit(3)", "-f").expect(2)
    assert listed(out) == ours | theirs  # not before there is a new one
    assert {(out / name).read_text() for name in ours} == {"old"}
    record("train()", "-f").expect(0)
    assert listed(out) == NAMES | theirs
    assert {(out / name).read_text() for name in theirs} == {"old"}
    done = spawn("analyze", "out/rank0.json.gz", "-o", "-", "-q", cwd=tmp_path).expect(0)
    assert [rank["rank"] for rank in json.loads(done.out)["ranks"]] == [0]


def test_links_and_folders_are_none_of_an_old_recording(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    (tmp_path / "precious.html").write_text("precious")
    (out / "rank0.traceprobe.json").write_text("{}")
    (out / "report.html").symlink_to(tmp_path / "precious.html")
    (out / "bench.json").mkdir()
    (work / "rank1.json.gz").write_bytes(gzip.compress(b"{}"))
    (work / "plan.json").write_text("{}")
    assert recording_files(out) == [out / "rank0.traceprobe.json"]
    deliver_recording(out, work, replace=True)
    assert listed(out) == {"rank1.json.gz", "report.html", "bench.json"}


def test_a_file_that_appeared_while_a_program_was_recorded_is_left(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    (out / "rank1.json.gz").write_text("precious")
    for name in ("rank0.json.gz", "rank0.traceprobe.json", "rank1.json.gz"):
        (work / name).write_text("new")
    with pytest.raises(UsageError, match=r"rank1\.json\.gz: a file of that name was written") as no:
        deliver_recording(out, work, replace=False)
    assert (out / "rank1.json.gz").read_text() == "precious"
    (apart,) = out.glob("recording-*")
    assert str(apart) in str(no.value)
    assert listed(out) == {"rank1.json.gz", apart.name}
    assert listed(apart) == {"rank0.json.gz", "rank0.traceprobe.json", "rank1.json.gz"}
    assert {path.read_text() for path in apart.iterdir()} == {"new"}


def test_a_recording_that_is_placed_without_force_is_whole(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    (work / "rank0.json.gz").write_text("new")
    (out / "rank9.json.gz").write_text("theirs")
    deliver_recording(out, work, replace=False)
    assert listed(out) == {"rank0.json.gz", "rank9.json.gz"}


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_a_complete_recording_outlives_a_command_that_is_interrupted(tmp_path):
    ends = "finally: open('trained', 'w').close(); import time; time.sleep(300)"
    (tmp_path / "train.py").write_text(TRAIN + f"try: train()\n{ends}")
    process = subprocess.Popen(
        [*MODULE, "profile", "-o", "out", *FAST, "-q", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        env=clean(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    wait_until((tmp_path / "trained").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert listed(tmp_path / "out") == {"rank0.json.gz", "rank0.traceprobe.json"}
    command = "the recording was complete and is kept; analyse it with: traceprobe analyze "
    assert f"{command}out/rank0.json.gz".encode() in said
    spawn("analyze", "out/rank0.json.gz", "-q", cwd=tmp_path).expect(0)


def test_a_folder_without_a_recording_loses_nothing(tmp_path):
    for name in ("rank0.json.gz", "report.json", "bench.json", "run.sqlite"):
        (tmp_path / name).write_text("mine")
    assert recording_files(tmp_path) == []


OWN = {
    "around all steps": "with profile(activities=CPU): train()",
    "on a schedule": """
with profile(activities=CPU, schedule=schedule(wait=4, warmup=1, active=2)) as own:
    train(each=own.step)""",
    "prepared, not started": """
with profile(activities=CPU, schedule=schedule(wait=1, warmup=9, active=2)) as own:
    train(each=own.step)""",
    "beginning within ours": "train(5)\nwith profile(activities=CPU): train()",
    "a short one within ours": "train(5)\nwith profile(activities=CPU): step()\ntrain()",
    "of autograd": "train(5)\nwith profiler.profile(): step()\ntrain()",
    "on another thread": """
import threading
running = threading.Event()
def own():
    with profile(activities=CPU):
        running.set()
        threading.Event().wait()
threading.Thread(target=own, daemon=True).start()
running.wait()
train()""",
    "in a program that expects anything": """
try:
    with profile(activities=CPU): train()
except BaseException:
    pass""",
}


FORKS = """
import json
ends = {}
for number, (place, text) in enumerate(json.loads(sys.argv[1]).items()):
    child = os.fork()
    if child == 0:
        os.environ["RANK"] = str(number)
        exec(text)
        os._exit(0)
    ends[place] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def with_own(pytorch, tmp_path_factory):
    """Each of these programs, as a rank of its own: how it ended, and what it left."""
    folder = tmp_path_factory.mktemp("own")
    plan = RecordingPlan(folder=str(folder), warmup=1, most_warmup=1, calibrate=2, active=3)
    done = subprocess.run(
        [sys.executable, "-c", TRAIN + FORKS, json.dumps(OWN)],
        env=program_environment(RecordingPlan.VARIABLE, plan.save()),
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), folder


@pytest.mark.slow
@pytest.mark.parametrize("place", OWN)
def test_a_program_with_a_profiler_of_its_own_refuses_to_be_recorded(with_own, place):
    ends, folder = with_own
    number = list(OWN).index(place)
    assert ends[place] in (0, 1)  # not killed by a signal
    assert (folder / f"rank{number}.refused").read_text() == OWN_PROFILER.format("torch.profiler")
    assert not (folder / f"rank{number}.traceprobe.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["on a schedule", "in a program that expects anything"])
def test_the_refusal_is_one_line(record, tmp_path, place):
    done = record(OWN[place], "-q").expect(2)
    assert done.err == f"traceprobe: {OWN_PROFILER.format('torch.profiler')}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_profiler_that_has_ended_before_is_none(record, tmp_path):
    record("with profile(activities=CPU): step()\ntrain()").expect(0)
    assert listed(tmp_path / "out") == NAMES


class Activity:
    def __init__(self, name):
        self.name = name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "activities", "refused"),
    [
        ("nsys", ["CPU", "CUDA"], True),
        ("nsys", ["CPU"], False),
        ("nsys", [], False),  # emit_nvtx, which is for Nsight Systems
        ("torch", [], True),
    ],
)
@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.usefixtures("pytorch")
def test_nsight_systems_shares_with_those_that_leave_the_device_alone(
    tmp_path, monkeypatch, backend, activities, refused, first
):
    from torch.autograd import profiler

    monkeypatch.setattr(profiler, "_enable_profiler", lambda *_: "enabled")
    monkeypatch.setattr(profiler, "_prepare_profiler", lambda *_: None)
    monkeypatch.setattr(profiler, "_disable_profiler", lambda *_: None)
    other_profilers = OtherProfilers()
    other_profilers.watch()

    def theirs():
        return profiler._enable_profiler("config", {Activity(name) for name in activities})

    def both():
        for begin in (theirs, ours) if first == "theirs" else (ours, theirs):
            begin()

    def ours():
        other_profilers.claim(str(tmp_path), backend)
        with other_profilers.ours():
            profiler._enable_profiler("config", {Activity("CUDA")})

    if not refused:
        both()
        return
    with pytest.raises(SystemExit):
        both()
    tool = {"torch": "torch.profiler", "nsys": "Nsight Systems"}[backend]
    assert (tmp_path / "rank0.refused").read_text() == OWN_PROFILER.format(tool)

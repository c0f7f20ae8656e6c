"""However a measured program ends: what was complete is kept, and nothing runs on or lies about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.cli_runner import MODULE, environment, interruptible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("pytorch"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc"),
]
LOOP = """
import multiprocessing, os, resource, signal, sys, time, tests.without_compiler, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(steps=1_000):
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.001)

"""
STAY = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(300)\n"
IGNORE = "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
LIMIT = "resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
FAST = ("--trials", "2", "--seconds", "0.01", "--warmup", "1")
SHORT = ("--warmup", "1", "--most-warmup", "1", "--calibrate", "2", "--active", "3", "--no-blame")
COMMANDS = {
    "profile": ("profile", "-o", "out", *SHORT),
    "bench": ("bench", "-o", "made.json", *FAST),
    "causal": ("bench", "--causal", "-o", "made.json", *FAST),
    "watch": ("watch", "-o", "made.json"),
}
RECORDED = {"rank0.json.gz", "rank0.traceprobe.json", "report.html", "report.json"}


class Running:
    """A command with a program, in a folder of its own, and all that comes from it."""

    def __init__(self, command, program, folder):
        self._folder, self._mark = folder, uuid.uuid4().hex
        (folder / "train.py").write_text(LOOP + program)
        with (folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [*MODULE, *COMMANDS[command], "-q", "--", sys.executable, "train.py"],
                cwd=folder,
                env=environment(MARK_OF_THE_TEST=self._mark),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                preexec_fn=interruptible,
            )

    def ended(self):
        """Exit code and what it said, when nothing of it is left."""
        code = self.process.wait(120)
        deadline = time.monotonic() + 30
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not self.alive()
        assert not list(self._folder.rglob(".recording-*"))
        return code, (self._folder / "said").read_text()

    def alive(self):
        mark = f"MARK_OF_THE_TEST={self._mark}".encode()
        return [process for process in Path("/proc").glob("[0-9]*") if has(process, mark)]

    def files(self):
        found = {path.name for path in self._folder.rglob("*") if path.is_file()}
        return found - {"train.py", "said", "began"}

    def until_it_began(self):
        deadline = time.monotonic() + 120
        while not (self._folder / "began").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def has(process, mark):
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and mark in (process / "environ").read_bytes()
    except OSError:
        return False


@pytest.fixture
def running(tmp_path):
    started = []

    def run(command, program):
        started.append(Running(command, program, tmp_path))
        return started[-1]

    yield run
    for each in started:
        for process in each.alive():
            os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "last", "said"),
    [
        ("profile", LIMIT + "x = [bytearray(1 << 20) for _ in range(10_000)]", "MemoryError"),
        ("bench", "os._exit(0)", "not as Python ends"),
        ("causal", "os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
    ids=["profile-memory", "bench-vanishes", "causal-killed"],
)
def test_a_program_that_ends_before_its_part_is_done_leaves_nothing(running, command, last, said):
    run = running(command, f"{STAY}train(3)\n{last}")
    code, told = run.ended()
    assert code == 2, told
    assert said in told
    assert run.files() == set()


@pytest.mark.parametrize("command", ["profile", "causal", "watch"])
def test_a_program_may_do_as_it_likes(running, command):
    """It becomes another one, leaves its folder, ignores signals, forks, and will not be ended."""
    run = running(
        command,
        f"""
train(3)
if len(sys.argv) < 2:
    os.execv(sys.executable, [sys.executable, "train.py", "again"])
os.chdir("/")
{IGNORE}
if os.fork() == 0:
    train(5)
    os._exit(0)
os.wait()
for _ in range(900):
    try: train(1)
    except BaseException: pass
""",
    )
    code, told = run.ended()
    assert code == 0, told
    assert "Traceback" not in told
    made = {"profile": RECORDED, "causal": {"made.json"}, "watch": {"made.json"}}
    assert run.files() == made[command]


def test_ranks_that_the_program_starts_itself_are_all_recorded(running):
    """By `torch.multiprocessing.spawn`, which sets no variables."""
    run = running(
        "profile",
        """
def work(rank, at):
    global model, optimizer
    torch.distributed.init_process_group("gloo", init_method=at, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train()

if __name__ == "__main__":
    at = f"file://{os.getcwd()}/out/.store"
    torch.multiprocessing.spawn(work, (at,), nprocs=2)
""",
    )
    code, told = run.ended()
    assert code == 0, told
    ranks = {name.replace("0", "1") for name in RECORDED}
    assert run.files() - {".store"} == RECORDED | ranks


@pytest.mark.parametrize(
    ("command", "orders", "code"),
    [("bench", [signal.SIGINT, signal.SIGINT], 130), ("causal", [signal.SIGKILL], -signal.SIGKILL)],
    ids=["bench-interrupted-twice", "causal-killed"],
)
def test_nothing_outlives_the_command(running, command, orders, code):
    run = running(command, f"{IGNORE}{STAY}train(3)\nopen('began', 'w').close()\ntrain(100_000)")
    run.until_it_began()
    for order in orders:
        run.process.send_signal(order)
        time.sleep(0.2)
    ended, told = run.ended()
    assert ended == code
    assert "Traceback" not in told
    assert run.files() == set()


def test_a_watched_program_outlives_the_command_and_cleans_up_after_it(running):
    run = running("watch", "train(3)\nopen('began', 'w').close()\ntrain(600)\nprint('trained')")
    run.until_it_began()
    run.process.kill()
    assert run.process.wait(60) == -signal.SIGKILL
    assert run.alive()  # it is the program that matters
    run.ended()
    assert run.files() == set()

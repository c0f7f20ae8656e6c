"""Nothing that a program starts outlives the command that started the program."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli_runner import MODULE, environment, interruptible
from tests.conftest import ROOT
from tests.processes import STAYS, ids_in, is_alive, needs_adoption, wait_until
from traceprobe.capture.process import launch, program_output, supervised
from traceprobe.capture.process.launch import RecordingFailed

pytestmark = needs_adoption

PROGRAMS = {
    "shell-wrapped": "stay()",
    "ignoring SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); stay()",
    "forked": "os.fork(); os.fork(); stay()",
    "daemonised": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        stay()
    os._exit(0)
os.wait()
stay()
""",
}
PROCESSES = {"shell-wrapped": 1, "ignoring SIGTERM": 1, "forked": 4, "daemonised": 2}


def command(kind, folder):
    """A program whose processes leave their ids in a folder of their own."""
    folder.mkdir()
    (folder / "ids").mkdir()
    script = folder / "program.py"
    script.write_text(STAYS + PROGRAMS[kind])
    words = [sys.executable, str(script), str(folder / "ids")]
    return ["sh", "-c", f"{shlex.join(words)}; true"] if kind == "shell-wrapped" else words


def profile(kind, folder):
    """Begin to record a program."""
    program = command(kind, folder)
    return subprocess.Popen(
        [*MODULE, "profile", "-o", str(folder / "out"), "--", *program],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Every program, recorded at the same time, after traceprobe was killed with -9."""
    folders = {kind: tmp_path_factory.mktemp("killed") / "run" for kind in PROGRAMS}
    started = {kind: profile(kind, folder) for kind, folder in folders.items()}
    for kind, folder in folders.items():
        wait_until(lambda kind=kind, folder=folder: len(ids_in(folder)) == PROCESSES[kind])
    for process in started.values():
        process.kill()
    for process in started.values():
        process.communicate(timeout=60)  # the supervisor holds the other end until all is done
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
def test_no_process_outlives_a_traceprobe_that_was_killed(killed, kind):
    folder = killed[kind]
    wait_until(lambda: not any(map(is_alive, ids_in(folder))), seconds=30)
    assert list((folder / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["INT", "TERM", "HUP"],
)
def test_an_order_to_end_reaches_every_process(tmp_path, number, code):
    folder = tmp_path / "run"
    process = profile("daemonised", folder)
    wait_until(lambda: len(ids_in(folder)) == 2)
    process.send_signal(number)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)  # an impatient one does not leave the work half done
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert b"Traceback" not in said
    assert not any(map(is_alive, ids_in(folder)))
    assert not (folder / "out").exists()


def test_what_nohup_ignores_is_ignored_by_the_program_too(tmp_path):
    """So that a closed terminal ends neither the command nor what it records."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGHUP); os.kill(os.getppid(), "
        "signal.SIGHUP); raise SystemExit('lived on')"
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(RecordingFailed, match="lived on"):
            ran(tmp_path, [sys.executable, str(program)])
    finally:
        signal.signal(signal.SIGHUP, before)


def ran(folder, program, notes=None):
    """Run a program under a supervisor; fails as it does."""
    told = [] if notes is None else notes
    launch.run_program(program, os.environ, folder, lambda _: None, told.append).expect_success()


@pytest.mark.parametrize(
    ("ranks_asked", "lives"), [((0, 1), True), ((0, 1), False), ((0,), True), ((), True)]
)
def test_a_program_that_goes_on_when_all_ranks_were_asked_to_end_is_ended(
    tmp_path, ranks_asked, lives
):
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.progress").write_text("done\n")
    for rank in ranks_asked:
        (tmp_path / f"rank{rank}.asked").write_text(str(os.getpid() if lives else 2**22 + 1))
    program = tmp_path / "program.py"
    all_were = len(ranks_asked) == 2 and lives
    program.write_text(f"import time; time.sleep({60 if all_were else 2})")
    notes, command = [], [sys.executable, str(program)]
    launch.run_program(
        *(command, os.environ, tmp_path, lambda _: None, notes.append), patience=1.0
    ).expect_success()
    told = ["the program went on for 1 s after its last step, and was ended"]
    assert notes == (told if all_were else [])


@pytest.mark.slow
def test_children_that_stay_when_a_program_ends_are_ended(tmp_path):
    folder = tmp_path / "run"
    program = command("daemonised", folder)
    script = Path(program[1])
    script.write_text(script.read_text().replace("os.wait()\nstay()", "os.wait()"))
    ran(tmp_path, program)
    assert len(ids_in(folder)) == 1
    assert not any(map(is_alive, ids_in(folder)))


def test_children_that_end_by_themselves_soon_are_let_be(tmp_path):
    """As nsys has: they write the last of a report."""
    last = tmp_path / "last"
    ran(tmp_path, ["sh", "-c", f"(sleep 0.5; echo written >{shlex.quote(str(last))}) & exit 0"])
    assert last.read_text() == "written\n"


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("exit 3", "the program ended with status 3"),
        ("kill -SEGV $$", "the program was killed by SIGSEGV"),
        ("kill -KILL $$", "the program was killed by SIGKILL"),
        ("kill -40 $$", "the program was killed by signal 40"),
        ("sh -c 'kill -SEGV $$'; exit $?", "the program ended with status 139, as after SIGSEGV"),
    ],
)
def test_how_a_program_ended_is_passed_on(tmp_path, program, how):
    with pytest.raises(RecordingFailed) as failed:
        ran(tmp_path, ["sh", "-c", f"echo secret words >&2; {program}"])
    assert str(failed.value).startswith(f"{how}; its last lines:\n    | secret words")
    assert failed.value.kind == how


def test_of_what_a_program_wrote_only_the_end_is_read_and_told(tmp_path, monkeypatch):
    """It may be gigabytes, in lines of any length, some of them commands to a CI system."""
    write = (
        "import os; block = b'x' * (1 << 20)\nfor _ in range(40): os.write(2, block)\n"
        "os.write(2, b'\\n::error::forged\\n'); raise SystemExit(3)"
    )
    read = []
    monkeypatch.setattr(
        launch, "barred", lambda line, shown=launch.barred: read.append(line) or shown(line)
    )
    with pytest.raises(RecordingFailed) as failed:
        ran(tmp_path, [sys.executable, "-c", write])
    assert sum(map(len, read)) <= program_output.MOST_BYTES
    _, long, last = str(failed.value).splitlines()
    assert long == f"    | {'x' * program_output.LONGEST_LINE}…"
    assert last == "    | ::error::forged"


def test_the_signal_that_killed_a_rank_is_named(tmp_path):
    said = "Root Cause (first observed failure):\n  rank : 1 (local_rank: 1)\n  exitcode : -11\n"
    (tmp_path / "said").write_text(said)
    with pytest.raises(RecordingFailed, match="rank 1 was killed by SIGSEGV"):
        ran(tmp_path, ["sh", "-c", f"cat {shlex.quote(str(tmp_path / 'said'))} >&2; exit 1"])


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        ran(tmp_path, ["no-such-program"])


def test_a_supervisor_that_is_killed_takes_the_program_with_it(tmp_path):
    folder = tmp_path / "run"
    program = command("ignoring SIGTERM", folder)
    Path(program[1]).write_text(STAYS + "os.kill(os.getppid(), signal.SIGKILL); stay()")
    with pytest.raises(RecordingFailed, match="watches over the program was killed"):
        ran(tmp_path, program)
    wait_until(lambda: not any(map(is_alive, ids_in(folder))))


@pytest.fixture
def supervised_by(tmp_path, monkeypatch):
    """Puts a supervisor into another kind of system, by lines that change it."""

    def change(lines):
        stand_in = tmp_path / "stand_in.py"
        stand_in.write_text(
            f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "from traceprobe.capture.process import supervisor\n"
            "supervisor.LINGER_S = supervisor.GRACE_S = supervisor.LIMIT_S = 0.3\n"
            f"{lines}\nsupervisor.main()\n"
        )
        monkeypatch.setattr(supervised, "_SUPERVISOR", stand_in)

    return change


def test_what_cannot_be_ended_is_named(tmp_path, supervised_by):
    supervised_by("def kill(*_): raise PermissionError\nos.kill = kill")
    notes = []
    ran(tmp_path, ["sh", "-c", "sleep 4 & exit 0"], notes)
    assert len(notes) == 1
    assert notes[0].startswith("traceprobe: cannot end sleep (process ")


@pytest.mark.parametrize(
    "change",
    ["supervisor._adopts = lambda: False", "supervisor._PROC = supervisor.Path('/nonexistent')"],
    ids=["adoption", "proc"],
)
def test_systems_that_lack_what_it_takes_end_the_group(tmp_path, supervised_by, change):
    supervised_by(change)
    folder = tmp_path / "run"
    program = command("forked", folder)
    waits = f"while [ $(ls {folder}/ids | wc -l) -lt 4 ]; do sleep 0.05; done"
    ran(tmp_path, ["sh", "-c", f"{shlex.join(program)} & {waits}; exit 0"])
    assert len(ids_in(folder)) == 4
    assert not any(map(is_alive, ids_in(folder)))

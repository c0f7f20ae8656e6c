"""Faults of the machine: nothing is lost, no half file stays, one message and the right exit code.

What touches the process is brought about in one of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.builders import kineto
from tests.cli_runner import (
    LOOP,
    MODULE,
    Cli,
    Done,
    environment,
    interruptible,
    on_a_terminal,
    spawn,
    write_trace,
)
from tests.conftest import ROOT
from tests.processes import needs_proc, wait_until_it_reads

pytestmark = pytest.mark.slow

MS = 1_000_000
HOSTILE = "e\x1b]52;c;aGk=\x07\x9b31m\u202e[bold]x.json"
WRITES = {
    "html": ["analyze", "run.json", "-o", "out.html"],
    "json": ["analyze", "run.json", "-o", "out.json"],
    "md": ["analyze", "run.json", "-o", "out.md"],
    "render": ["render", "report.json", "-o", "out.html"],
    "slice": ["slice", "run.json", "--steps", "1:9", "-o", "out.json"],
    "slice-gz": ["slice", "run.json", "--steps", "1:9", "-o", "out.json.gz"],
    "slice-sqlite": ["slice", "run.sqlite", "--steps", "1:9", "-o", "out.sqlite"],
    "anonymise": ["inspect", "--anonymise", "run.json", "-o", "out.json"],
    "anonymise-sqlite": ["inspect", "--anonymise", "run.sqlite", "-o", "out.sqlite.gz"],
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A trace of each format, and a report."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("run.json", "run.sqlite", "run.sqlite.gz"):
        write_trace(folder / name)
    spawn("analyze", "run.json", "-q", "-o", "report.json", cwd=folder).expect(0)
    return folder


@pytest.fixture
def folder(tmp_path, inputs):
    """A folder with all of them."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def cli(folder, monkeypatch, capfdbinary):
    return Cli(folder, monkeypatch, capfdbinary)


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


def short_of_space():
    """As on a disk with 1,000 bytes left: Python ignores the signal and gets an error.

    Bytecode must not be written in such a process: Python would keep what was cut off.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))


def one_message(done: Done, *parts: str) -> None:
    """Exit code 2 and one line that says what is wrong."""
    err = done.expect(2).err
    assert err.startswith("traceprobe: ")
    assert err.count("\n") == 1
    assert all(part in err for part in parts), err


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_leaves_the_old_file_and_no_other(folder, name):
    command = WRITES[name]
    target = folder / command[-1]
    target.write_text("precious")
    before = listed(folder)
    done = spawn(*command, "-f", cwd=folder, env=NO_BYTECODE, preexec_fn=short_of_space)
    one_message(done, f"{target.name}: cannot be written", "nothing was left behind")
    assert target.read_text() == "precious"
    assert listed(folder) == before


def test_a_full_temporary_folder_is_named(folder, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    done = spawn(
        *("analyze", "run.sqlite.gz", "-o", "out.json"),
        cwd=folder,
        env={"TMPDIR": str(temporary)} | NO_BYTECODE,
        preexec_fn=short_of_space,
    )
    one_message(done, "run.sqlite.gz: cannot be unpacked in", str(temporary), "set TMPDIR")
    assert listed(temporary) == []
    assert "out.json" not in listed(folder)


def as_others():
    """Without the capabilities by which permissions do not hold for root."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def test_a_file_that_may_not_be_read(folder):
    (folder / "run.json").chmod(0)
    for command in (["analyze", "-o", "-"], ["inspect"], ["render"]):
        done = spawn(*command, "run.json", cwd=folder, preexec_fn=as_others)
        one_message(done, "run.json: Permission denied; ask its owner", "chmod a+r")


@pytest.mark.parametrize("name", WRITES)
def test_a_folder_that_may_not_be_written(folder, name):
    folder.chmod(0o555)
    before = listed(folder)
    done = spawn(*WRITES[name], cwd=folder, preexec_fn=as_others)
    folder.chmod(0o755)
    one_message(
        done,
        f"{WRITES[name][-1]}: cannot be written: this user may not write into the current folder",
        "choose another place with -o",
    )
    assert listed(folder) == before


@pytest.mark.parametrize("name", ["html", "slice", "anonymise"])
@pytest.mark.parametrize("leads", ["nowhere", "report.json"])
def test_links_are_no_outputs(cli, folder, name, leads):
    target = folder / WRITES[name][-1]
    target.symlink_to(leads)
    before = (folder / "report.json").read_bytes()
    one_message(cli(*WRITES[name], "-f"), f"{target.name}: is a symbolic link")
    assert target.is_symlink()
    assert (folder / "report.json").read_bytes() == before
    assert "nowhere" not in listed(folder)


def closed(*numbers):
    def close():
        for number in numbers:
            os.close(number)

    return close


@pytest.mark.parametrize(
    "command", [["analyze", "run.json", "-o", "-"], ["inspect", "run.json"]], ids=" ".join
)
def test_no_standard_output_for_data(folder, command):
    done = spawn(*command, cwd=folder, preexec_fn=closed(1))
    one_message(done, "standard output is closed")


def test_no_standard_streams_at_all(folder):
    """As a service runs: files are written all the same, and nothing ends up in them."""
    spawn("analyze", "run.json", "-q", "-o", "a.json", cwd=folder).expect(0)
    for number, gone in enumerate([(1,), (2,), (0, 1, 2)]):
        name = f"b{number}.json"
        spawn("analyze", "run.json", "-o", name, cwd=folder, preexec_fn=closed(*gone)).expect(0)
        assert (folder / name).read_bytes() == (folder / "a.json").read_bytes()
    done = spawn("analyze", "absent", cwd=folder, preexec_fn=closed(2)).expect(2)
    assert done.out == ""


@pytest.mark.parametrize("command", [["--help"], ["inspect", "run.json"]], ids=" ".join)
def test_head_hears_no_more_than_it_asked_for(folder, command):
    shell = f'"{sys.executable}" -m traceprobe {" ".join(command)} | head -1'
    done = subprocess.run(
        ["sh", "-c", shell], cwd=folder, env=environment(), capture_output=True, timeout=120
    )
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_a_folder_that_is_gone(folder):
    (folder / "gone").mkdir()
    script = f'rmdir ../gone; exec "{sys.executable}" -m traceprobe analyze "$0"'
    done = subprocess.run(
        ["sh", "-c", script, str(folder / "run.json")],
        cwd=folder / "gone",
        env=environment(),
        capture_output=True,
        timeout=120,
        text=True,
    )
    one_message(Done(done.returncode, done.stdout, done.stderr), "the current folder is gone")


@pytest.mark.parametrize("changes", [{"HOME": ""}, {"TMPDIR": "/nonexistent"}], ids=str)
def test_no_home_and_no_temporary_folder(folder, changes):
    kept = {k: v for k, v in environment().items() if k not in ("HOME", "TMPDIR", "USER")}
    arguments = [*MODULE, "analyze", "run.sqlite.gz", "-q", "-o", "a.html", "-o", "a.md"]
    given = {k: v for k, v in changes.items() if v}
    subprocess.run(arguments, cwd=folder, env=kept | given, check=True, timeout=120)
    assert {"a.html", "a.md"} <= set(listed(folder))


def test_names_that_are_no_text(folder):
    """In a process: the streams of pytest replace what cannot be encoded."""
    name, target = os.fsdecode(b"r\xff.json"), os.fsdecode(b"o\xfe.html")
    (folder / "run.json").rename(folder / name)
    done = spawn("analyze", name, "-o", target, cwd=folder).expect(0)
    assert "wrote o" in done.err
    assert target in listed(folder)
    spawn("inspect", name, cwd=folder).expect(0)
    spawn("slice", name, "--steps", "1:4", "-o", os.fsdecode(b"s\xff.json"), cwd=folder).expect(0)
    spawn("analyze", name, "-q", cwd=folder).expect(0)
    assert os.fsdecode(b"traceprobe-r\xff.html") in listed(folder)


def test_names_as_long_as_can_be(cli, folder):
    name = "é" * 122 + ".json.gz"[:5]
    (folder / "run.json").rename(folder / name)
    done = cli("analyze", name, "-q").expect(0)
    assert done.err == ""
    (page,) = folder.glob("traceprobe-*.html")
    assert len(os.fsencode(page.name)) <= 255
    longest = "k" * 250 + ".json"
    cli("analyze", name, "-q", "-o", longest).expect(0)
    assert longest in listed(folder)
    assert "File name too long" in cli("analyze", "k" * 300).expect(2).err


@pytest.mark.parametrize("command", ["analyze", "inspect", "render"])
@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
def test_file_names_cannot_steer_the_terminal(cli, folder, command, there):
    if there:
        (folder / HOSTILE).write_text("no trace")
    done = cli(command, HOSTILE).expect(2)
    assert done.err.strip()
    assert all(c.isprintable() or c == "\n" for c in done.out + done.err)


def test_names_in_the_progress_bar_cannot_steer_the_terminal(folder):
    (folder / "run.json").rename(folder / HOSTILE)
    for command in (["inspect", HOSTILE], ["analyze", HOSTILE, "-o", "a.html"]):
        shown = on_a_terminal(*command, cwd=folder, env={"TERM": "xterm"})
        assert "reading e31m[bold]x.json" in shown
        assert not re.search("\x1b\\]|\x07|\x9b|\u202e", shown)


def started(*command, cwd, **options):
    return subprocess.Popen(
        [*MODULE, *map(str, command)],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **{"preexec_fn": interruptible, **options},
    )


@needs_proc
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["TERM", "HUP"]
)
@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "big.json", "-o", "out.html"],
        ["inspect", "big.json"],
        ["inspect", "--anonymise", "big.json", "-o", "out.json.gz"],
        ["slice", "big.json", "--steps", "1:3", "-o", "out.json"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_end_from_outside_leaves_nothing(tmp_path, command, number, code):
    kineto.write_repeated(tmp_path / "big.json", kineto.dumps(LOOP.scenario()), 60_000_000)
    process = started(*command, cwd=tmp_path)
    wait_until_it_reads(process, tmp_path / "big.json")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, b"", b"")
    assert listed(tmp_path) == ["big.json"]


def test_what_nohup_ignores_stays_ignored(folder):
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    process = started("analyze", "run.json", "-o", "a.html", cwd=folder, **ignoring)
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.02)
    process.communicate()
    assert process.returncode == 0
    assert "a.html" in listed(folder)


@needs_proc
@pytest.mark.parametrize("change", ["grows", "vanishes"])
def test_an_input_that_changes_while_it_is_read(tmp_path, change):
    big = tmp_path / "big.json"
    kineto.write_repeated(big, kineto.dumps(LOOP.scenario()), 60_000_000)
    process = started("analyze", big, "-o", "out.json", cwd=tmp_path)
    wait_until_it_reads(process, big)
    if change == "grows":
        with big.open("ab") as file:
            file.write(b" ")
    else:
        big.unlink()
    out, err = process.communicate(timeout=120)
    expected = {"grows": "was changed while it was read", "vanishes": "No such file"}[change]
    one_message(Done(process.returncode, out.decode(), err.decode()), "big.json: ", expected)
    assert "out.json" not in listed(tmp_path)


@pytest.mark.parametrize("jump_us", [-3_600_000_000, 3_600_000_000], ids=["back", "forward"])
def test_a_clock_that_jumps_between_iterations(tmp_path, jump_us):
    """The second half of the capture has time stamps of an hour before or after."""
    trace = json.loads(kineto.dumps(LOOP.scenario()))
    times = sorted(e["ts"] for e in trace["traceEvents"] if e.get("ph") == "X")
    middle = times[len(times) // 2]
    for event in trace["traceEvents"]:
        if event.get("ts", 0) > middle:
            event["ts"] += jump_us
    (tmp_path / "run.json").write_text(json.dumps(trace))
    done = spawn("analyze", "run.json", "-o", "-", cwd=tmp_path).expect(0)
    report = json.loads(done.out)
    windows = [i for r in report["ranks"] for i in r["iterations"] if i["start_ns"] is not None]
    assert all(i["end_ns"] > i["start_ns"] for i in windows)
    assert all(
        sum(v or 0 for v in i["partition_ns"].values()) == i["end_ns"] - i["start_ns"]
        for i in windows
    )


def test_the_clock_of_the_wall_measures_nothing():
    """It may be set while a run is recorded."""
    code = {path: path.read_text(encoding="utf-8") for path in (ROOT / "traceprobe").rglob("*.py")}
    assert len(code) > 100
    wall = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\b|import time_ns|from time import time\b")
    found = [path.name for path, text in code.items() if wall.search(text)]
    assert found == ["nvml.py"]  # the driver asks since when by the wall's clock, and answers so


SLOW = """
import sys, time, pathlib
from traceprobe.capture import recorder
for number, x in enumerate(recorder().steps([0] * 1000)):
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(0.3)
"""


@pytest.mark.parametrize("command", ["profile", "bench"])
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
    ids=["TERM", "INT", "HUP"],
)
@pytest.mark.usefixtures("pytorch")
def test_an_end_while_a_program_runs_leaves_neither_it_nor_files(tmp_path, command, number, code):
    (tmp_path / "train.py").write_text(textwrap.dedent(SLOW))
    out = tmp_path / "out"
    out.mkdir()
    target = out if command == "profile" else out / "bench.json"
    program = [sys.executable, tmp_path / "train.py", tmp_path / "running"]
    process = started(
        *(command, "-o", target, "--", *program),
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "running").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert listed(out) == []
    (tmp_path / "running").unlink()
    time.sleep(1)
    assert not (tmp_path / "running").exists()  # the program would have made it again


def test_a_recording_is_kept_and_named_where_its_analysis_fails(tmp_path, capfd):
    from traceprobe.cli import profile

    with pytest.raises(ZeroDivisionError), profile._kept([tmp_path / "rank0.json.gz"]):
        1 / 0  # noqa: B018
    assert f"traceprobe analyze {tmp_path}/rank0.json.gz" in capfd.readouterr().err

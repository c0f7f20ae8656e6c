"""The command line as a process: pipes, terminals, encodings, signals, full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import kineto
from tests.cli_runner import (
    LOOP,
    MODULE,
    Done,
    environment,
    interruptible,
    on_a_terminal,
    spawn,
    write_trace,
)
from tests.processes import needs_proc, wait_until_it_reads

pytestmark = pytest.mark.slow

SGR = "\x1b["
DATA = [
    ["analyze", "run.json", "-o", "-"],
    ["analyze", "run.json", "-o", "a.json"],
    ["inspect", "run.json"],
]


@pytest.fixture
def folder(tmp_path):
    write_trace(tmp_path / "run.json")
    return tmp_path


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A folder with a report."""
    folder = tmp_path_factory.mktemp("reported")
    trace = write_trace(folder / "run.json")
    spawn("analyze", trace, "-q", "-o", "report.json", cwd=folder).expect(0)
    return folder


@pytest.mark.parametrize("arguments", DATA, ids=" ".join)
def test_a_reader_that_has_gone_away(folder, arguments):
    read, write = os.pipe()
    os.close(read)
    try:
        done = spawn(*arguments, cwd=folder, stdout=write)
    finally:
        os.close(write)
    assert done.expect(2).err == ""


def test_head_takes_the_first_line_and_no_more(folder):
    command = f'"{sys.executable}" -m traceprobe analyze run.json -o - | head -1'
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment(), capture_output=True, timeout=120
    )
    assert (done.stdout, done.stderr) == (b"{\n", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", DATA[::2], ids=" ".join)
def test_standard_output_on_a_full_disk(folder, arguments):
    with Path("/dev/full").open("wb") as full:
        done = spawn(*arguments, cwd=folder, stdout=full).expect(2)
    assert "standard output: cannot be written: No space left on device" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_messages_that_nobody_gets_change_no_exit_code(folder):
    read, gone = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    for stream in (full, gone):
        command = ("analyze", "run.json", "-f", "-o", "told.json")
        assert spawn(*command, cwd=folder, stderr=stream).code == 0
        assert (folder / "told.json").exists()
        (folder / "told.json").unlink()
        os.close(stream)


def test_a_failing_write_leaves_the_old_file_or_none(folder):
    (folder / "a.json").write_text("precious")
    before = {path.name for path in folder.iterdir()}

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))

    command = ("analyze", "run.json", "-f", "-o", "a.json", "-o", "b.json")
    # Python would keep bytecode that was cut off.
    no_bytecode = {"PYTHONDONTWRITEBYTECODE": "1"}
    done = spawn(*command, cwd=folder, env=no_bytecode, preexec_fn=limited)
    assert "a.json: cannot be written: File too large" in done.expect(2).err
    assert {path.name for path in folder.iterdir()} == before
    assert (folder / "a.json").read_text() == "precious"


@needs_proc
@pytest.mark.parametrize(
    "command", [["analyze", "big.json", "-o", "a.html"], ["inspect", "big.json"]]
)
def test_an_interrupt_ends_with_130_and_leaves_nothing(tmp_path, command):
    big = tmp_path / "big.json"
    kineto.write_repeated(big, kineto.dumps(LOOP.scenario()), 100_000_000)
    process = subprocess.Popen(
        [*MODULE, *command],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    wait_until_it_reads(process, big)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    done = Done(process.returncode, out.decode(), err.decode()).expect(130)
    assert (done.out, done.err.splitlines()[-1]) == ("", "traceprobe: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == [big.name]


@pytest.mark.parametrize(
    ("variables", "colored"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_colour_on_a_terminal(reported, variables, colored):
    text = on_a_terminal("render", "report.json", cwd=reported, env=variables)
    assert "I/O-bound" in text
    assert (SGR in text) == colored


def test_progress_is_shown_on_a_terminal_unless_quiet(folder):
    loud = on_a_terminal("inspect", "run.json", cwd=folder, env={"TERM": "xterm"})
    quiet = on_a_terminal("inspect", "-q", "run.json", cwd=folder, env={"TERM": "xterm"})
    assert "reading run.json" in loud
    assert "reading" not in quiet
    assert "gpu ops" in loud
    assert "gpu ops" in quiet


def test_what_a_file_holds_is_folded_to_a_width_and_whole_without_one(folder):
    env = {"TERM": "dumb", "COLUMNS": "50"}
    shown = on_a_terminal("inspect", "-q", "run.json", cwd=folder, env=env).split("\r\n")
    whole = spawn("inspect", "run.json", cwd=folder).expect(0).out.splitlines()
    piped = spawn("inspect", "run.json", cwd=folder, env=env).expect(0).out.splitlines()
    assert piped == shown[:-1]
    assert max(map(len, shown)) <= 50 < max(map(len, whole))
    assert " ".join(" ".join(shown).split()) == " ".join(" ".join(whole).split())


def test_a_terminal_that_knows_ascii_only(reported):
    variables = {"PYTHONIOENCODING": "ascii"}
    done = spawn("render", "report.json", cwd=reported, env=variables).expect(0)
    assert done.out.startswith("I/O-bound")
    assert done.out.isascii()


def test_names_are_shown_in_any_encoding(tmp_path):
    write_trace(
        tmp_path / "run.json", type(LOOP)(**{**vars(LOOP), "step_name": "Schritt ✓ step {}"})
    )
    done = spawn("inspect", "run.json", cwd=tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    assert r"Schritt ? step \d+" in done.expect(0).out


def test_json_is_utf_8_in_any_encoding(reported):
    report = (reported / "report.json").read_text(encoding="utf-8")
    assert not report.isascii()
    done = spawn(
        *("render", "report.json", "-o", "-"), cwd=reported, env={"PYTHONIOENCODING": "ascii"}
    )
    assert done.expect(0).out == report
    assert json.loads(done.out)["schema_version"] == "1.0"

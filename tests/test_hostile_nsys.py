"""Reports of nsys from strangers: their names, what lies beside them, and an nsys that hangs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess

import pytest

from tests.builders import nsight
from tests.cli_runner import LOOP, MODULE, environment, interruptible
from tests.processes import STAYS, ids_in, is_alive, needs_adoption, wait_until
from traceprobe.capture.process import nsys_tool

pytestmark = needs_adoption


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """An nsys that keeps the words it was given, and exports the same run whatever it is given."""
    export, words = tmp_path / "export.sqlite", tmp_path / "words"
    nsight.write(LOOP.scenario(), export)
    tool = tmp_path / "nsys"
    tool.write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$@" >{words}\n'
        f'for o in "$@"; do case "$o" in --output=*) cp {export} "${{o#--output=}}";; esac; done\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("TRACEPROBE_NSYS", str(tool))
    return lambda: words.read_bytes().decode().split("\0")[:-1]


def report_in(folder, name="run.nsys-rep"):
    folder.mkdir()
    (folder / name).write_bytes(b"QuadD" * 50)
    return folder


@pytest.mark.parametrize(
    "name", ["--app-launch=x.nsys-rep", "-h.nsys-rep", "a\nb.nsys-rep", "x" * 246 + ".nsys-rep"]
)
def test_no_name_of_a_report_is_an_option_of_nsys(cli, tmp_path, monkeypatch, nsys, name):
    monkeypatch.chdir(report_in(tmp_path / "theirs", name))
    cli("analyze", ".", "-o", "-", "-q").expect(0)
    assert nsys()[-1] == str(tmp_path / "theirs" / name)
    assert all(word.startswith(("/", "--")) for word in nsys()[1:])


def test_every_command_that_reads_traces_reads_a_report(cli, tmp_path, nsys):
    report = report_in(tmp_path / "theirs") / "run.nsys-rep"
    assert "Nsight" in cli("inspect", report).expect(0).out
    cli("slice", report, "--steps", "0:2", "-o", "cut.sqlite").expect(0)
    assert "iterations" in cli("analyze", "cut.sqlite", "-o", "-", "-q").expect(0).out
    assert "run.sqlite" in cli("doctor", report).expect(0).out


SIDECARS = {
    "rankX.traceprobe.json": "{}",
    "rank.traceprobe.json": "{}",
    "rank7.traceprobe.json": "{",
    "rank8.traceprobe.json": "[]",
    "rank9.traceprobe.json": "[" * 100_000,
    "rank10.traceprobe.json": '{"a": ' + "9" * 5000 + "}",
    "rank11.traceprobe.json": json.dumps({"a": "x" * (2 << 20)}),
    f"rank{1 << 70}.traceprobe.json": "{}",
    "rank²³.traceprobe.json": "{}",
}


def test_what_lies_beside_a_report_and_is_no_calibration_is_none(cli, tmp_path, nsys):
    folder = report_in(tmp_path / "theirs")
    for name, text in SIDECARS.items():
        (folder / name).write_text(text)
    (folder / "rank1.traceprobe.json").write_bytes(b'{"a": "\xff"}')
    os.mkfifo(folder / "rank2.traceprobe.json")
    (folder / "rank3.traceprobe.json").mkdir()
    (tmp_path / "outside").write_text("{}")
    (folder / "rank4.traceprobe.json").symlink_to(tmp_path / "outside")
    (folder / "rank0.traceprobe.json").write_text('{"unprofiled_step_ms": 30.0}')
    assert nsys_tool.read_sidecars(folder) == {0: {"unprofiled_step_ms": 30.0}}
    done = cli("analyze", folder / "run.nsys-rep", "-o", "-", "-q").expect(0)
    assert json.loads(done.out)["quality"]["observer_effect"]["unprofiled_step_ms"] == 30.0


MANY = """
name = "many"
workload = "tiny-mlp"
[[rungs]]
name = "one"
change = "one"
[[rungs]]
name = "two"
change = "two"
ranks = 2
"""
HANGS = STAYS + "os.fork(); stay()"
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


@pytest.mark.slow
def test_no_tool_or_process_of_ours_outlives_a_command_that_is_ended(tmp_path):
    """nsys export, the version of nsys, and a PyTorch that hangs as it is imported."""
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "many.toml").write_text(MANY)
    started = {}
    commands = {number.name: (number, "analyze", "run.nsys-rep", "-o", "-") for number in ENDS}
    commands["version"] = (signal.SIGKILL, "doctor")
    commands["torch"] = (signal.SIGKILL, "doctor")
    commands["GPUs"] = (signal.SIGKILL, "sweep", str(tmp_path / "many.toml"), "-o", "out")
    for case, (_, *arguments) in commands.items():
        folder = report_in(tmp_path / case)
        (folder / "ids").mkdir()
        hangs = [MODULE[0], str(tmp_path / "hangs.py"), str(folder / "ids")]
        tool = folder / "nsys"
        tool.write_text(f"#!/bin/sh\n{shlex.join(hangs)}\ntrue\n")
        tool.chmod(0o755)
        torch = folder / "lib" / "torch"
        torch.mkdir(parents=True)
        (torch / "__init__.py").write_text(f"import sys; sys.argv[1:] = {hangs[2:]!r}\n{HANGS}")
        path = os.pathsep.join([str(folder / "lib"), environment()["PYTHONPATH"]])
        changes = {} if case in ("torch", "GPUs") else {"TRACEPROBE_NSYS": str(tool)}
        started[case] = subprocess.Popen(
            [*MODULE, *arguments],
            cwd=folder,
            env=environment(PYTHONPATH=path, **changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=interruptible,
        )
    for case, process in started.items():
        wait_until(lambda case=case: len(ids_in(tmp_path / case)) >= 2)
        process.send_signal(commands[case][0])
    left = {}
    for case, process in started.items():
        assert process.wait(60) == ENDS[commands[case][0]], case
        left[case] = ids_in(tmp_path / case)
    wait_until(
        lambda: not any(is_alive(number) for numbers in left.values() for number in numbers), 20
    )

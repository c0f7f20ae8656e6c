"""No command opens a connection: each runs where the first socket of the network ends the process.

Python reports every socket before it exists (an audit event), whichever library asks for it.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace

import pytest
import typer.main

from tests.cli_runner import LOOP, MODULE, spawn, write_trace
from tests.conftest import ROOT
from traceprobe.cli import app

FORBIDDING = """
import os, socket, sys

def forbid(event, arguments):
    if event == "subprocess.Popen" and "-I" in arguments[1]:  # isolated, so it is told there
        code = arguments[1].index("-c") + 1
        arguments[1][code] = f"exec(open({__file__!r}).read()); {arguments[1][code]}"
    if not event.startswith("socket."):
        return
    local = event == "socket.__new__" and arguments[1] == socket.AF_UNIX  # of processes here
    if not local and event not in ("socket.gethostname",):
        os.write(2, f"network: {event}\\n".encode())
        os._exit(99)

sys.addaudithook(forbid)
"""
COMMANDS = {
    "analyze": [
        ["analyze", "run.json", "-o", "a.html", "-o", "a.json", "-o", "a.md"],
        ["analyze", "run.sqlite.gz", "-o", "b.html"],
        ["analyze", "ranks", "--jobs", "2", "-o", "c.html", "--redact"],
        ["analyze", "run.json", "--cache", "kept", "-o", "e.html"],
    ],
    "inspect": [
        ["inspect", "run.json"],
        ["inspect", "run.sqlite.gz"],
        ["inspect", "--anonymise", "run.json", "-o", "copy.json"],
        ["inspect", "--anonymise", "run.sqlite.gz", "-o", "copy.sqlite"],
    ],
    "render": [["render", "report.json", "-o", "d.html", "-o", "d.md"], ["render", "report.json"]],
    "doctor": [["doctor"], ["doctor", "run.json"]],
    "compare": [["compare", "run.json", "report.json", "-o", "f.html", "-o", "f.md"]],
    "ladder": [["ladder", "report.json", "run.json", "-o", "g.html"]],
    "gpus": [["gpus", "report.json", "run.json", "-o", "h.html"]],
    "scaling": [["scaling", "run.json", "ranks", "--mode", "weak", "-o", "i.html"]],
    "whatif": [["whatif", "report.json", "--remove", "host", "-o", "j.html"]],
    "top": [["top", "run.json", "--by", "kernel"]],
    "roofline": [["roofline", "run.json", "--flops-per-step", "1e9", "-o", "k.html"]],
    "annotate": [["annotate", "ranks", "-o", "annotated.json.gz"]],
    "slice": [["slice", "run.json", "--steps", "1:4", "-o", "part.json.gz"]],
}
RUNS_PROGRAMS = {"profile", "bench", "sweep", "memory", "watch"}
"""Commands that run what the user names, which may do as it likes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Traces, a report, and a start-up file that forbids the network."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "ranks").mkdir()
    for name in ("run.json", "run.sqlite.gz", "ranks/0.json"):
        write_trace(folder / name)
    write_trace(folder / "ranks/1.json", replace(LOOP, forward_ns=LOOP.forward_ns + 1000))
    spawn("analyze", "run.json", "-q", "-o", "report.json", cwd=folder).expect(0)
    (folder / "sitecustomize.py").write_text(textwrap.dedent(FORBIDDING))
    return folder


def offline(folder, *arguments, command=MODULE):
    paths = {"PYTHONPATH": f"{folder}:{ROOT}"}
    return spawn(*arguments, cwd=folder, command=command, env=paths)


def test_the_trap_works(folder):
    for code in (
        "import socket; socket.socket()",
        "import urllib.request as u; u.urlopen('http://localhost')",
        "import socket; socket.getaddrinfo('localhost', 80)",
    ):
        assert offline(folder, "-c", code, command=(MODULE[0],)).code == 99


def test_the_trap_works_in_processes_of_ours(folder):
    code = (
        "import subprocess, sys; from traceprobe.system import isolated; "
        "sys.exit(subprocess.run(isolated.command('import socket; socket.socket()')).returncode)"
    )
    assert offline(folder, "-c", code, command=(MODULE[0],)).code == 99


def test_every_command_is_tried():
    known = set(typer.main.get_command(app).commands)
    assert {*COMMANDS, *RUNS_PROGRAMS} >= known


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [c for commands in COMMANDS.values() for c in commands], ids=" ".join
)
def test_no_command_uses_the_network(folder, arguments):
    done = offline(folder, *arguments)
    # The doctor may find something wrong with the machine of the tests.
    done.expect(min(done.code, 1) if arguments[0] == "doctor" else 0)


def test_the_page_may_not_load_or_send_anything(folder):
    offline(folder, "analyze", "run.json", "-q", "-f", "-o", "page.html").expect(0)
    page = (folder / "page.html").read_text(encoding="utf-8")
    head = page[: page.index("<style")]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', head)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("base-uri") == "'none'"
    assert rules.pop("form-action") == "'none'"
    allowed = {"'unsafe-inline'", "data:"}
    assert all(set(sources.split()) <= allowed for sources in rules.values())

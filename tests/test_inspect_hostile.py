"""Traces of strangers: their names steer no terminal, and nothing in them is executed."""

from __future__ import annotations

import json
import re

import pytest

from tests.builders import kineto, nsight
from tests.cli_runner import LOOP, write_trace
from tests.report_factory import HOSTILE

pytestmark = pytest.mark.slow

ESCAPES = [
    "\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07",
    "\x9d52;c;aGk=\x9c",
    "\x9b2J",
    "\x1b[2J\x1b[H",
    "\u202eabc\u2066",
]


@pytest.fixture
def trace(tmp_path):
    """A trace whose ranges, kernels, threads and devices have such names."""
    names = [*HOSTILE, *ESCAPES]
    whole = json.loads(kineto.dumps(LOOP.scenario()))
    for n, event in enumerate(whole["traceEvents"]):
        name = names[n % len(names)]
        if event["ph"] == "M":
            event["args"] = {**event.get("args", {}), "name": name}
        elif not event["name"].startswith("step"):
            event["name"] = f"{event['name']} {name}"
    for device in whole.get("deviceProperties", []):
        device["name"] = " ".join(ESCAPES)
    (tmp_path / "run.json").write_text(json.dumps(whole))
    return tmp_path / "run.json"


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize(
    "command",
    [["inspect", "run.json"], ["analyze", "run.json", "-v", "-f", "-o", "a.md"]],
    ids=["inspect", "analyze"],
)
def test_names_in_a_trace_cannot_steer_the_terminal(cli, command):
    done = cli(*command).expect(0)
    assert [c for c in done.out + done.err if not (c.isprintable() or c == "\n")] == []


def test_names_in_a_trace_are_no_markup(cli, trace):
    cli("analyze", "run.json", "-q", "-o", "a.md", "-o", "a.html").expect(0)
    markdown = (trace.parent / "a.md").read_text(encoding="utf-8")
    page = (trace.parent / "a.html").read_text(encoding="utf-8")
    steering = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
    assert not steering.search(markdown)
    assert "<img" not in markdown
    assert "<img src=x" not in page
    assert page.count("</script") == len(re.findall("<script", page))


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "run.sqlite", "-q", "-o", "a.json"],
        ["inspect", "run.sqlite"],
        ["slice", "run.sqlite", "--steps", "1:4", "-o", "part.sqlite"],
        ["inspect", "--anonymise", "run.sqlite", "-o", "copy.sqlite"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_trace_is_never_written_nor_executed(cli, tmp_path, command):
    """Its schema may hold triggers, views that call functions, and constraints on copies."""
    trace = write_trace(tmp_path / "run.sqlite")
    nsight.edit(
        trace,
        "CREATE TABLE traceprobe (rank INTEGER, json TEXT, x DEFAULT (writefile('owned', 'x')))",
        "CREATE TRIGGER boo AFTER INSERT ON StringIds BEGIN SELECT load_extension('owned'); END",
        "DROP TABLE ThreadNames",
        "CREATE VIEW ThreadNames AS SELECT load_extension('owned') AS globalTid, 1 AS nameId",
    )
    before = trace.read_bytes()
    done = cli(*command)
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    assert done.code in (0, 2)
    assert trace.read_bytes() == before
    assert "owned" not in {path.name for path in tmp_path.iterdir()}

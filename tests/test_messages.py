"""What is said on standard error: names cannot steer it, and commands can be copied."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli_runner import write_trace
from tests.rendering import terminal_of
from tests.report_factory import make_input, make_report
from traceprobe.capture.process.launch import RecordingFailed
from traceprobe.capture.process.progress import ended_early
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.run_recording import _too_short
from traceprobe.cli import console
from traceprobe.cli.profile import _kept, _next
from traceprobe.errors import UnsupportedInput, UsageError
from traceprobe.ingest.detect_format import detect_format
from traceprobe.pipeline.invariants import message
from traceprobe.records.report import Term
from traceprobe.render import terminal
from traceprobe.render.document import Document
from traceprobe.render.next_step import next_command, slice_command
from traceprobe.system import shell

NAMES = [
    "plain.json",
    "two words.json",
    "a;touch PWNED;.json",
    "$(touch PWNED).json",
    "`touch PWNED`.json",
    "a'b\"c.json",
    "'; touch PWNED; '.json",
    "-rf.json",
    "--output=x.json",
    "a  b.json",
    " a.json ",
    "a\nb.json",
    "a\x1b[31mb\x07.json",
    "a\u202egpj.json",
    "a\udcffb.json",
    "a*?[b]!,.json",
    "~.json",
    "#a&b|c>d<e.json",
    "\\n.json",
    "'a\n'b.json",
    "ü.json",
]
HEADS = {
    "zip": b"PK\x03\x04zz",
    "zstd": b"\x28\xb5\x2f\xfdzz",
    "lfs": b"version https://git-lfs.github.com/spec/v1\n",
    "hdf5": b"\x89HDF\r\n\x1a\n",
    "parquet": b"PAR1",
    "report": b"QuadD NVIDIA Nsight",
}


def on_a_terminal(monkeypatch):
    """Standard error as a terminal whose output is kept."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return stream


def words(command):
    """The words that a shell makes of a command, file names as they are on disk."""
    if "$'" not in command:
        return shlex.split(command)
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True
    )
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def named(name):
    return f"./{name}" if name.startswith("-") else name


@pytest.mark.parametrize("name", NAMES)
def test_a_word_is_what_it_stands_for(name):
    assert words(f"a {shell.word(name)} b") == ["a", name, "b"]
    assert words(shell.file(name)) == [named(name)]
    assert shell.word(name).isprintable()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HEADS)
def test_commands_that_convert_a_file_name_it_exactly(tmp_path, kind, name):
    (tmp_path / name).write_bytes(HEADS[kind])
    with pytest.raises(UnsupportedInput) as refused:
        detect_format(tmp_path / name)
    said = console_line(str(refused.value))
    command = words(re.search(r": `(.*)`$|with `(.*)`$", said)[0].partition("`")[2][:-1])
    export = ["nsys", "export", "--type", "sqlite", "-o"]
    target = named(f"{name.split('.')[0]}.sqlite")
    assert (
        command
        in {
            "zip": [["unzip", named(name)]],
            "zstd": [["zstd", "-d", named(name)]],
            "lfs": [["git", "lfs", "pull", f"--include={name}"], ["git", "lfs", "pull"]],
            "hdf5": [[*export, target, "REPORT.nsys-rep"]],
            "parquet": [[*export, target, "REPORT.nsys-rep"]],
            "report": [[*export, target, named(name)]],
        }[kind]
    )


def console_line(message):
    """A message as it reaches the reader."""
    stream, before = io.StringIO(), sys.stderr
    sys.stderr = stream
    try:
        console.note(message, quiet=False)
    finally:
        sys.stderr = before
    (line,) = stream.getvalue().splitlines()
    return line


@pytest.mark.parametrize("name", NAMES)
def test_commands_to_go_on_with_name_the_file_exactly(name):
    report = make_report("io")
    cut = slice_command(report, [name])
    assert words(cut) == [
        *("traceprobe", "slice", named(name), "--steps", "3:5", "-o", "step3.json.gz")
    ]
    assert words(next_command(report, [name])[0]) == words(cut)
    stepless = [
        replace(rank, summary=replace(rank.summary, iterations_used=0)) for rank in report.ranks
    ]
    inspect, _ = next_command(replace(report, ranks=stepless), [name])
    assert words(inspect) == ["traceprobe", "inspect", named(name)]


def test_a_step_time_is_to_be_given_with_all_the_files():
    report = make_report("overhead")
    term = Term(name="observer-effect", value=-0.3, why="unknown")
    verdict = replace(report.verdict, confidence_terms=[*report.verdict.confidence_terms, term])
    report = replace(report, verdict=verdict, inputs=[report.inputs[0]] * 2)
    command, _ = next_command(report, ["rank0.json", "rank 1.json"])
    assert words(command)[:4] == ["traceprobe", "analyze", "rank0.json", "rank 1.json"]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", [*NAMES, "x" * 200])
def test_a_command_in_a_terminal_can_be_copied_whatever_its_width(name, width):
    shown = terminal_of(make_report("io"), width, False, paths=[name])
    found = re.search(r"^  traceprobe slice(.|\n)*?\.json\.gz$", shown, re.MULTILINE)[0]
    assert all(len(line) <= width for line in found.split("\n") if name not in line)
    command = words(found.replace("\\\n", ""))
    assert command[:3] == ["traceprobe", "slice", named(name)]
    assert command[3:] == ["--steps", "3:5", "-o", "step3.json.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_the_command_on_the_page_is_whole(name):
    """Also that of a long name, which the page shortens elsewhere."""
    page = replace(make_report("io"), inputs=[make_input(name + "x" * 200)]).to_html()
    shown = re.search(r"<code>(traceprobe slice .*?)</code>", page)[1]
    for entity, character in (("lt", "<"), ("gt", ">"), ("#39", "'"), ("#34", '"'), ("amp", "&")):
        shown = shown.replace(f"&{entity};", character)
    assert words(shown)[-4:] == ["--steps", "3:5", "-o", "step3.json.gz"]
    assert len(words(shown)) == 7


@pytest.mark.parametrize("name", NAMES)
def test_an_internal_error_names_the_input_exactly(name):
    lines = message(["wrong"], [make_input(name)]).splitlines()
    assert words(lines[-1].strip())[:4] == ["traceprobe", "inspect", "--anonymise", named(name)]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_that_is_kept_is_named_exactly(tmp_path, capsys, name):
    with pytest.raises(UsageError), _kept([tmp_path / name, tmp_path / "b"]):
        raise UsageError("x")
    (line,) = capsys.readouterr().err.splitlines()
    command = words(line.partition("with: ")[2])
    assert command == ["traceprobe", "analyze", str(tmp_path / name), str(tmp_path / "b")]


def test_a_name_adds_no_line(cli):
    write_trace(cli.folder / "run.json")
    done = cli("analyze", "run.json\ntraceprobe: all is well\x1b[31m.json")
    lines = done.expect(2).err.splitlines()
    assert not any(line.startswith("traceprobe: all") for line in lines)
    (cli.folder / "a\nb.json").write_text("no trace")
    (line,) = cli("inspect", "a\nb.json").expect(2).err.splitlines()
    assert line.startswith("traceprobe: a b.json: ")


JOB_COMMANDS = [
    "::add-mask::a",
    "  ::error::x",
    ":::error::x",
    "a ##[error]x",
    "##vso[x]",
    "###[x]",
]


def obeyed(line: str) -> bool:
    """Whether the runner of a CI job takes a line for a command."""
    return line.lstrip().startswith("::") or re.search(r"##\w*\[", line) is not None


@pytest.mark.parametrize("text", JOB_COMMANDS)
def test_no_name_commands_the_runner_of_a_job(capfd, text):
    assert obeyed(text)
    console.note(text, quiet=False)
    console.text_out(f"a table\n{text}\ntraceprobe: wrote it", "utf-8")
    out, err = capfd.readouterr()
    shown = out.splitlines()
    assert not any(map(obeyed, [*shown, *err.splitlines()]))
    assert len(shown[1]) == len(text)  # columns stay in line
    assert not shown[2].startswith("traceprobe:")  # as only our messages begin


def test_json_on_standard_output_commands_nobody_and_says_the_same(capfd):
    told = {"name": JOB_COMMANDS, "\\##[x]": "\\\\##vso[y]"}
    console.json_out(json.dumps(told, indent=2))
    out = capfd.readouterr().out
    assert json.loads(out) == told
    assert not any(map(obeyed, out.splitlines()))


def test_what_comes_next_can_be_run(cli, tmp_path):
    """From where it is printed; `profile -v` would not show more, but record again."""
    folder = tmp_path / "of two words"
    folder.mkdir()
    (folder / "report.json").write_text(make_report("io").to_json(), encoding="utf-8")
    page, command = _next(folder)
    assert words(page) == ["next:", "open", str(folder / "report.html"), "in", "a", "browser"]
    assert words(command)[:3] == ["or:", "traceprobe", "render"]
    assert "note: " in cli(*words(command)[2:]).expect(0).out


@pytest.mark.parametrize("columns", ["9" * 5000, "1" + "0" * 30, "-5", "1e3"])
def test_a_width_beyond_reason_is_none(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    assert console.terminal_width() <= console.MAX_WIDTH
    assert console._messages().width <= console.MAX_WIDTH
    document = Document(kind="ladder", title="", headline="one line", version="1", json="{}")
    printed = terminal.render(document, console.terminal_width(), color=True)
    assert printed == "\none line\n"


@pytest.mark.parametrize("columns", ["0", "-3", "wide"])
def test_a_width_that_is_none_is_that_of_any_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert console.terminal_width() == console.DEFAULT_WIDTH


def test_a_terminal_that_was_never_told_its_size_is_not_narrow(monkeypatch):
    """A new pseudo-terminal says that it has 0 columns."""
    ours, theirs = os.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours):
        monkeypatch.setattr(sys, "stdout", stream)
        assert os.get_terminal_size(stream.fileno()).columns == 0
        assert console.terminal_width() == console.DEFAULT_WIDTH


def test_what_a_program_said_last_keeps_its_lines(monkeypatch, cli):
    def fails(*_):
        raise RecordingFailed(
            "the program ended with status 1; its last lines:\n    a\x1b[1m\n    b"
        )

    monkeypatch.setattr("traceprobe.pipeline.load.read_trace", fails)
    write_trace(cli.folder / "run.json")
    done = cli("inspect", "run.json").expect(2)
    assert done.err.splitlines()[-2:] == ["    a", "    b"]


def test_a_state_is_no_markup(monkeypatch):
    """Of a rung that fails, say, with what its program said."""
    terminal = on_a_terminal(monkeypatch)
    with console.states(quiet=False) as say:
        say("failed: no such tag [/red] [bold]\x1b]0;owned\x07\nx")
    shown = terminal.getvalue()
    assert "failed: no such tag [/red] [bold] x" in shown
    assert "owned" not in shown


def test_nothing_that_shows_progress_reads_markup(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    with console.progress([Path("[bold]a[red]\x1b[31m.json")], quiet=False) as of:
        of(0)(1, 2)
    with console.counting(2, quiet=False) as at:
        at(0, 0.5)
    assert "[bold]a[red].json" in terminal.getvalue()


def test_a_program_without_a_loop_is_told_what_a_step_is(tmp_path):
    """Fewer steps or a longer run would help it no more."""
    told = _too_short(RecordingPlan(folder=str(tmp_path)), tmp_path)
    assert "no step of an optimizer" in told
    assert "--calibrate" not in told
    ended_early(str(tmp_path), 4, 41)
    told = _too_short(RecordingPlan(folder=str(tmp_path)), tmp_path)
    assert "after 4 steps, and a recording of it needs 41; let it run longer" in told


def test_a_short_program_is_told_with_which_options_it_is_long_enough(tmp_path):
    ended_early(str(tmp_path), 24, 45)
    told = _too_short(RecordingPlan(folder=str(tmp_path)), tmp_path)
    assert "record fewer (--warmup 3 --most-warmup 3 --calibrate 6 --active 4)" in told


@pytest.mark.parametrize("plan", [RecordingPlan(), RecordingPlan(warmup=1, calibrate=2, active=40)])
def test_a_shorter_plan_is_shorter_and_enough(plan):
    found = [plan.shortened(steps) for steps in range(plan.steps + 3)]
    assert found[12] is None
    assert found[13] is not None
    for steps, shorter in enumerate(found):
        assert shorter is None or shorter.steps <= min(steps, plan.steps - 1)
    longest = [shorter.active for shorter in found if shorter is not None]
    assert longest == sorted(longest)

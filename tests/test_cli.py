"""What the commands print and write, where, and how they end."""

from __future__ import annotations

import json
import re
import shlex
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest

import traceprobe
from tests.cli_runner import LOOP, MODULE, SCRIPT, spawn, write_trace
from tests.report_rules import problems
from traceprobe.cli.outputs import default_output

installed = pytest.mark.skipif(
    not Path(SCRIPT[0]).exists(), reason="traceprobe is not installed in this environment"
)
COMMANDS = [pytest.param(MODULE, id="module"), pytest.param(SCRIPT, id="script", marks=installed)]


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "run.json.gz")


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_all_that_goes_to_standard_output(trace, tmp_path, command):
    done = spawn("analyze", trace, "-o", "-", cwd=tmp_path, command=command).expect(0)
    assert problems(done.out) == []
    assert done.err == ""
    assert [path.name for path in tmp_path.iterdir()] == [trace.name]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_summary_is_data_and_the_rest_are_messages(trace, tmp_path, command):
    done = spawn("analyze", trace, "-o", "a.md", cwd=tmp_path, command=command).expect(0)
    assert done.out.startswith("I/O-bound")
    assert done.err.startswith("wrote a.md (")
    assert "wrote" not in done.out


def test_without_an_output_it_is_a_page_in_the_current_folder(cli, trace):
    done = cli("analyze", trace).expect(0)
    assert done.err.startswith("wrote traceprobe-run.html (")
    assert "</html>" in (cli.folder / "traceprobe-run.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_usage_ends_with_2_and_says_so_on_standard_error(tmp_path, command):
    done = spawn("analyze", "absent.json", cwd=tmp_path, command=command).expect(2)
    assert "absent.json" in done.err
    assert done.out == ""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(tmp_path, command, option):
    done = spawn(option, cwd=tmp_path, command=command).expect(0)
    assert (done.out, done.err) == (f"traceprobe {traceprobe.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["analyze", "-h"], ["render", "--help"]])
def test_help(cli, arguments):
    done = cli(*arguments).expect(0)
    assert "Usage:" in done.out
    assert done.err == ""
    assert "\x1b" not in done.out


def test_no_arguments_at_all_show_the_help(cli):
    done = cli().expect(2)
    assert "Usage:" in done.out + done.err


def test_rendering_again_changes_no_byte(cli, trace):
    outputs = ["-o", "a.json", "-o", "a.html", "-o", "a.md"]
    cli("analyze", trace, *outputs).expect(0)
    cli("render", "a.json", *[name.replace("a.", "b.") for name in outputs]).expect(0)
    for suffix in ("json", "html", "md"):
        first, second = (cli.folder / f"{name}.{suffix}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 500
    assert cli("render", "a.json", "-o", "-").expect(0).out == (cli.folder / "a.json").read_text()


def test_rendering_an_inconclusive_report_again_changes_no_byte(cli):
    thirds = {"forward_ns": 400_000, "data_wait_ns": 400_000, "tail_ns": 400_000}
    trace = write_trace(cli.folder / "short.json", loop=type(LOOP)(steps=2, **thirds))
    cli("analyze", trace, "-o", "a.json", "-o", "a.html").expect(0)
    cli("render", "a.json", "-o", "b.html", "-o", "b.json").expect(0)
    assert (cli.folder / "a.html").read_bytes() == (cli.folder / "b.html").read_bytes()
    assert (cli.folder / "a.json").read_bytes() == (cli.folder / "b.json").read_bytes()


def test_render_without_output_prints_the_summary_of_analyze(cli, trace):
    first = cli("analyze", trace.name, "-o", "a.json").expect(0)
    again = cli("render", "a.json").expect(0).out
    assert again == first.out


def test_the_next_command_works_where_it_is_printed(cli, trace):
    """Beside a report in another folder the trace is found; where it is not, nothing is said."""
    made = cli.folder / "traceprobe-unet"
    made.mkdir()
    beside = trace.rename(made / "rank 0.json")
    cli("analyze", beside, "-o", made / "report.json").expect(0)
    said = cli("render", "traceprobe-unet/report.json").expect(0).out
    command = re.search(r"next, [^:]*:\n((?:  .*\n)+)", said)[1].replace("\\\n", "")
    assert shlex.split(command)[:3] == ["traceprobe", "slice", "traceprobe-unet/rank 0.json"]
    cli(*shlex.split(command)[1:]).expect(0)
    beside.rename(cli.folder / "elsewhere.json")
    assert "next, " not in cli("render", "traceprobe-unet/report.json").expect(0).out


@pytest.mark.parametrize(
    ("variables", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": "", "FORCE_COLOR": ""}, False),
    ],
    ids=str,
)
def test_colour_in_a_pipe(cli, trace, monkeypatch, variables, colored):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = cli("analyze", trace, "-o", "a.json").expect(0)
    assert ("\x1b[" in done.out) == colored


@pytest.mark.parametrize(
    ("columns", "width"),
    [("40", 40), ("60", 60), ("120", 120), ("0", 80), ("-5", 80), ("wide", 80)],
)
def test_the_summary_keeps_to_the_columns(cli, trace, monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    done = cli("analyze", trace.name, "-o", "a.json").expect(0)
    lines = [len(line) for line in done.out.splitlines()]
    assert 0.6 * width < max(lines) <= width


def test_an_inconclusive_verdict_is_an_answer(cli):
    thirds = {"forward_ns": 400_000, "data_wait_ns": 400_000, "tail_ns": 400_000}
    trace = write_trace(cli.folder / "short.json", loop=type(LOOP)(steps=2, **thirds))
    done = cli("analyze", trace, "-o", "-").expect(0)
    assert json.loads(done.out)["verdict"]["bound"] == "inconclusive"


def test_several_outputs_at_once(cli, trace):
    done = cli("analyze", trace, "-o", "a.md", "-o", "-", "-o", "b.json").expect(0)
    assert (cli.folder / "b.json").read_text(encoding="utf-8") == done.out
    assert (cli.folder / "a.md").read_text(encoding="utf-8").startswith("#")
    assert "wrote a.md" in done.err


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("run.json", "traceprobe-run.html"),
        ("run.json.gz", "traceprobe-run.html"),
        ("run.pt.trace.json.gz", "traceprobe-run.html"),
        ("run.sqlite.gz", "traceprobe-run.html"),
        ("run.v2.sqlite", "traceprobe-run.v2.html"),
        ("trace", "traceprobe-trace.html"),
    ],
)
def test_the_default_output_lies_in_the_current_folder(name, output):
    assert default_output(Path("/far/away") / name) == Path(output)


def test_the_report_of_a_folder_has_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "big run"
    folder.mkdir()
    assert default_output(folder) == Path("traceprobe-big run.html")
    monkeypatch.chdir(folder)
    assert default_output(Path()) == Path("traceprobe-big run.html")


def test_nothing_is_overwritten_without_force(cli, trace):
    (cli.folder / "a.json").write_text("precious")
    done = cli("analyze", trace, "-o", "a.json", "-o", "b.html").expect(2)
    assert "a.json: exists" in done.err
    assert "--force" in done.err
    assert cli.files() == {trace.name, "a.json"}
    assert (cli.folder / "a.json").read_text() == "precious"
    cli("analyze", trace, "-f", "-o", "a.json").expect(0)
    assert json.loads((cli.folder / "a.json").read_text(encoding="utf-8"))["verdict"]


def test_a_page_that_nobody_asked_for_stops_nothing(cli, trace, monkeypatch):
    page = cli.folder / "traceprobe-run.html"
    page.write_text("precious")
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    done = cli("analyze", trace, "--open").expect(0)
    assert done.out.startswith("I/O-bound")
    assert done.err == (
        "kept traceprobe-run.html, which was there before; overwrite it with --force, or choose "
        "another with -o\n"
    )
    assert page.read_text() == "precious"
    assert not opened
    assert "exists; overwrite" in cli("analyze", trace, "-q").expect(2).err
    assert "exists; overwrite" in cli("analyze", trace, "-o", page.name).expect(2).err
    assert page.read_text() == "precious"
    assert "wrote traceprobe-run.html" in cli("analyze", trace, "--force").expect(0).err


def test_the_page_of_the_same_trace_is_written_again(cli, trace):
    page = cli.folder / "traceprobe-run.html"
    cli("analyze", trace, "-q").expect(0)
    whole = page.read_bytes()
    cli("analyze", trace, "--steps", "2:8", "-q").expect(0)
    assert page.read_bytes() != whole
    assert "wrote traceprobe-run.html" in cli("analyze", trace).expect(0).err
    assert page.read_bytes() == whole
    # Whoever left the names out does not want them back.
    assert "kept traceprobe-run.html" in cli("analyze", trace, "--redact").expect(0).err
    cli("analyze", trace, "--redact", "--force", "-q").expect(0)
    assert "kept traceprobe-run.html" in cli("analyze", trace).expect(0).err
    write_trace(trace, replace(LOOP, steps=7))
    assert "kept traceprobe-run.html" in cli("analyze", trace, "--redact").expect(0).err


@pytest.mark.parametrize("report", ["[]", '{"inputs": 1}', "{", "\xff", '{"inputs": []}'])
def test_a_page_with_another_report_is_kept(cli, trace, report):
    text = f'<script type="application/json" id="traceprobe-report">{report}</script>'
    (cli.folder / "traceprobe-run.html").write_text(text, encoding="latin-1")
    assert "kept traceprobe-run.html" in cli("analyze", trace).expect(0).err
    assert (cli.folder / "traceprobe-run.html").read_text(encoding="latin-1") == text


def test_outputs_have_the_rights_of_any_new_file(cli, trace):
    (cli.folder / "plain").touch()
    cli("analyze", trace, "-q", "-o", "a.json").expect(0)
    assert (cli.folder / "a.json").stat().st_mode == (cli.folder / "plain").stat().st_mode


def test_quiet_is_silent(cli, trace):
    done = cli("analyze", trace, "-q", "-o", "a.json").expect(0)
    assert (done.out, done.err) == ("", "")
    done = cli("render", "a.json", "-q", "-o", "a.md").expect(0)
    assert (done.out, done.err) == ("", "")


def test_quiet_still_prints_the_data_that_was_asked_for(cli, trace):
    done = cli("analyze", trace, "-q", "-o", "-").expect(0)
    assert json.loads(done.out)
    assert done.err == ""


def test_quiet_does_not_hide_errors(cli):
    (cli.folder / "empty.json").touch()
    assert "empty" in cli("analyze", "empty.json", "-q").expect(2).err


def test_verbose_says_how_the_trace_was_read(cli, trace):
    done = cli("analyze", trace, "-v", "-o", "a.json").expect(0)
    assert "run.json.gz: PyTorch profiler (Kineto)" in done.err
    assert "relative to baseTimeNanoseconds" in done.err


@pytest.mark.parametrize("suffix", ["json.gz", "sqlite"])
def test_inspect(cli, suffix):
    trace = write_trace(cli.folder / f"run.{suffix}")
    done = cli("inspect", trace).expect(0)
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert lines["file"].startswith(f"run.{suffix}: ")
    assert lines["steps"] == r"process 1000: 10 x step \d+ (range)"
    assert lines["linked"].startswith("110 of 110")
    assert done.err == ""
    assert cli.files() == {trace.name}


def test_open_opens_the_page(cli, trace, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    cli("analyze", trace, "--open", "-q").expect(0)
    assert opened == [(cli.folder / "traceprobe-run.html").as_uri()]


def report_of(done):
    return json.loads(done.expect(0).out)


def test_steps_selects_iterations(cli, trace):
    for option, used in (("2:6", [2, 3, 4, 5]), (":4", [0, 1, 2, 3]), ("5:", [5, 6, 7, 8])):
        (rank,) = report_of(cli("analyze", trace, "-o", "-", "--steps", option))["ranks"]
        assert [i["index"] for i in rank["iterations"] if i["used"]] == used
        assert rank["summary"]["iterations_used"] == len(used)


def test_step_names_the_marker(cli, trace):
    (rank,) = report_of(cli("analyze", trace, "-o", "-", "--step", "^forward$"))["ranks"]
    assert rank["step_marker"]["kind"] == "user"
    assert rank["step_marker"]["pattern"] == "^forward$"


def test_phase_maps_a_name(cli):
    loop = type(LOOP)(**{**vars(LOOP), "wait": "range"})
    trace = write_trace(cli.folder / "run.json", loop)
    named = ("--phase", "forward=nothing", "--phase", "optimizer=^forward$")
    (rank,) = report_of(cli("analyze", trace, "-o", "-", *named))["ranks"]
    busy = rank["summary"]["busy_ns"]
    assert busy["optimizer"] >= LOOP.forward_ns * rank["summary"]["iterations_used"]


def test_rank_selects_one(cli):
    from tests.builders.scenario import Process

    for number in (0, 1):
        process = Process(pid=1000 + number, rank=number)
        write_trace(
            cli.folder / f"rank{number}.json", type(LOOP)(**{**vars(LOOP), "process": process})
        )
    report = report_of(cli("analyze", "rank0.json", "rank1.json", "--rank", "1", "-o", "-"))
    assert [rank["rank"] for rank in report["ranks"]] == [1]
    assert len(report["inputs"]) == 2


def test_the_unprofiled_step_time_corrects_the_verdict(cli, trace):
    report = report_of(cli("analyze", trace, "--unprofiled-step-ms", "30", "-o", "-"))
    effect = report["quality"]["observer_effect"]
    assert effect["unprofiled_step_ms"] == 30.0
    assert effect["ratio"] == pytest.approx(effect["profiled_step_ms"] / 30, abs=1e-3)

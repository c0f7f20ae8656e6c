"""What the command line refuses: with exit code 2, one clear message, and nothing written."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import faults, kineto
from tests.cli_runner import LOOP, write_trace
from traceprobe import TraceprobeError, load
from traceprobe.pipeline.trace_part import Lost, or_lost

FOREIGN = {
    "empty.json": (faults.EMPTY, "empty"),
    "pointer.json.gz": (faults.LFS_POINTER, "git lfs pull --include=pointer.json.gz"),
    "run.h5": (faults.HDF5, "HDF5"),
    "run.nsys-rep": (faults.NSYS_REPORT, "nsys export --type sqlite -o run.sqlite run.nsys-rep"),
    "run.pftrace": (faults.PFTRACE, "Perfetto"),
    "run.parquet": (faults.PARQUET, "Parquet"),
    "run.zip": (b"PK\x03\x04" + bytes(100), "unzip run.zip"),
    "run.tar": (b"rank0.json".ljust(257, b"\0") + b"ustar\x0000", "tar xf run.tar"),
    "run.tar.gz": (
        gzip.compress(b"rank0.json".ljust(257, b"\0") + b"ustar\x0000"),
        "tar xf run.tar.gz",
    ),
    "run.json.zst": (b"\x28\xb5\x2f\xfd" + bytes(100), "zstd -d run.json.zst"),
    "notes.txt": (b"Dear diary", "neither a Chrome trace"),
    "zeros.json": (bytes(5000), "neither a Chrome trace"),
    "list.json": (b"[]", "without trace events"),
    "object.json": (b'{"a": 1}', "without trace events"),
    "nothing.json": (b'{"schemaVersion": 1, "traceEvents": [ ]}', "`traceEvents` is empty"),
    "unread.json": (b'{"traceEvents": [7]}', "none of its 1 events can be read"),
    "values.json": (b"[1, 2, 3]", "JSON without trace events"),
    "broken.json": (b"[1, 2", "none of its 1 events can be read"),
    "saved.json": (b'{"kind": "x", "traceprobe_version": "1"}', "traceprobe render saved.json"),
    "saved.json.gz": (gzip.compress(b'{"traceprobe_version": ""}'), "saved.json` after unpacking"),
    "et.json": (b'{"schema": "1.1", "pid": 1, "nodes": []}', "an execution trace of PyTorch"),
    "spans.json": (b'{"resourceSpans": []}', "OpenTelemetry"),
    "sizes.json": (b"[[0, 1], [[5, 6], [7, 8]]]", "a memory timeline"),
    "raw.json.gz": (
        gzip.compress(b"[" + b"[-1, 1, 9, 0]," * 4 + b"[17, 2, 9, 4]]"),
        "a memory timeline",
    ),
    "py-spy.json": (b'{"$schema": "https://www.speedscope.app/x", "shared": {}}', "speedscope"),
    "speed.json": (b'{"version": "0", "profiles": [], "shared": {}}', "a speedscope profile"),
    "shot.json": (b"\x89PNG\r\n\x1a\n" + bytes(90), "a picture"),
    "sums.csv": (b'"Time (%)","Total Time (ns)"\n1,2\n', "a table of `nsys stats`"),
    "model.pt": (b"PK\x03\x04" + bytes(26) + b"model/data.pkl" + bytes(9), "of `torch.save`"),
    "snapshot.pickle": (b"\x80\x04\x95" + bytes(9) + b"\x8c\x08segments", "a memory snapshot"),
    "nccl_trace_rank_0": (b"\x80\x04\x95" + bytes(9) + b"\x8c\x09pg_config", "traceprobe hang"),
    "fr.json": (b'{"version": "2.10", "pg_config": {}, "entries": []}', "traceprobe hang"),
    "any.pickle": (b"\x80\x04\x95" + bytes(9) + b"\x8c\x08anything", "is not opened"),
    "page.html": (b"<!DOCTYPE html><html>", "an HTML page"),
    "cut.json": (
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, '
        b'"ts": 1, "dur": 2}, {"ph": "X", "ca',
        "; 1 damaged event lost",
    ),
    "deep.json": (b'{"traceEvents": [' + b'{"a": ' * 50_000, ""),
    "header.sqlite": (b"SQLite format 3\0", "damaged"),
    "broken.json.gz": (b"\x1f\x8b\x08\0" + bytes(200), "gzip"),
}


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "run.json")


@pytest.fixture
def no_nsys(monkeypatch):
    monkeypatch.setenv("TRACEPROBE_NSYS", "/nowhere/nsys")


def refused(cli, *arguments):
    """The message of a command that must fail without writing anything."""
    before = cli.files()
    done = cli(*arguments).expect(2)
    assert cli.files() == before
    assert done.out == ""
    assert done.err.strip()
    return done.err


@pytest.mark.parametrize("command", ["analyze", "inspect"])
@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_no_trace(cli, no_nsys, name, command):
    content, part = FOREIGN[name]
    (cli.folder / name).write_bytes(content)
    message = refused(cli, command, name)
    assert name in message
    assert part in message
    assert message.count("\n") == 1


def test_truncated_files(cli):
    data = write_trace(cli.folder / "whole.sqlite").read_bytes()
    (cli.folder / "cut.sqlite").write_bytes(faults.truncated_sqlite(data))
    assert "nsys export" in refused(cli, "analyze", "cut.sqlite")
    (cli.folder / "cut.sqlite.gz").write_bytes(gzip.compress(data)[:2000])
    assert "copy the file again" in refused(cli, "analyze", "cut.sqlite.gz")


def test_a_truncated_trace_is_read_as_far_as_it_goes(cli):
    data = kineto.dumps(LOOP.scenario())
    (cli.folder / "cut.json").write_bytes(data[: len(data) * 3 // 4])
    done = cli("analyze", "cut.json", "-o", "report.json").expect(0)
    report = json.loads((cli.folder / "report.json").read_text())
    assert [w["code"] for w in report["quality"]["warnings"]] == ["events-lost", "truncated-file"]
    assert "note: The file ends in the middle of the events" in done.out


def test_a_trace_of_a_loader_alone_is_empty(cli):
    """A CPU run that is cut while it loads its first batch has phases and no work."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    row = {"ph": "X", "pid": 1, "tid": 1, "ts": 10.0, "dur": 90.0}
    events = [
        row | {"cat": "user_annotation", "name": "ProfilerStep#2"},
        row | {"cat": "user_annotation", "name": name},
        row | {"cat": "cpu_op", "name": "aten::stack", "ts": 20.0, "dur": 5.0},
    ]
    (cli.folder / "loading.json").write_text(json.dumps({"traceEvents": events}))
    assert "loading.json" in refused(cli, "analyze", "loading.json")


def test_messages_from_files_cannot_steer_the_terminal(cli):
    body = {
        "traceEvents": [{"ph": "i", "name": "x", "ts": 1}],
        "ERROR": ["\x1b[31m CUPTI failed \x07"],
    }
    (cli.folder / "empty.json").write_text(json.dumps(body))
    message = refused(cli, "analyze", "empty.json")
    assert "CUPTI failed" in message
    assert "\x1b" not in message
    assert "\x07" not in message


def test_a_file_name_that_is_no_text(cli, trace):
    name = os.fsdecode(b"tr\xff.json")
    trace.rename(cli.folder / name)
    report = json.loads(cli("analyze", name, "-o", "-").expect(0).out)
    assert report["inputs"][0]["name"].startswith("tr")


@pytest.mark.parametrize("command", ["analyze", "inspect", "render"])
def test_inputs_that_are_no_file(cli, command):
    assert "absent" in refused(cli, command, "absent")
    (cli.folder / "folder").mkdir()
    assert "directory" in refused(cli, command, "folder")


ONE_TRACE = pytest.mark.parametrize(
    "command", [["inspect"], ["slice", "--steps", "0:2", "-o", "s.json"]], ids=["inspect", "slice"]
)


@ONE_TRACE
def test_a_folder_where_one_file_is_wanted_names_what_it_holds(cli, trace, command):
    (cli.folder / "two runs").mkdir()
    trace.rename(cli.folder / "two runs" / "a.json")
    write_trace(cli.folder / "two runs" / "b.json")
    message = refused(cli, *command, "two runs")
    assert message.count("\n") == 1
    assert message.endswith(
        "is a directory with 2 traces; name one of them: 'two runs/a.json', 'two runs/b.json'\n"
    )


@ONE_TRACE
def test_a_folder_with_one_trace_stands_for_it(cli, trace, command):
    (cli.folder / "traceprobe-train").mkdir()
    (cli.folder / "traceprobe-train" / "report.html").write_text("<html>")
    alone = cli(*command, trace).expect(0).out
    (cli.folder / "s.json").unlink(missing_ok=True)
    trace.rename(cli.folder / "traceprobe-train" / trace.name)
    assert cli(*command, "traceprobe-train").expect(0).out == alone


def test_a_folder_to_be_rendered_names_its_report(cli):
    (cli.folder / "traceprobe-train").mkdir()
    assert "as traceprobe-train/report.json" in refused(cli, "render", "traceprobe-train")


@pytest.mark.parametrize("command", ["analyze", "inspect"])
def test_a_pipe_is_no_input(cli, command):
    os.mkfifo(cli.folder / "pipe.json")
    assert "regular file" in refused(cli, command, "pipe.json")
    assert "regular file" in refused(cli, command, os.devnull)


def test_an_empty_name_is_not_the_current_folder(cli, trace):
    assert "has no name" in refused(cli, "analyze", "", "-o", "a.json")


def test_a_url_is_called_one(cli):
    message = refused(cli, "analyze", "https://example.org/run.json.gz")
    assert message.startswith("traceprobe: https://example.org/run.json.gz: is a URL; download")


def test_the_same_input_twice(cli, trace):
    (cli.folder / "link.json").symlink_to(trace)
    assert "given twice" in refused(cli, "analyze", "run.json", "run.json")
    assert "given twice" in refused(cli, "analyze", "run.json", "link.json")


def test_one_bad_input_among_good_ones(cli, trace):
    (cli.folder / "bad.json").write_text("no")
    assert "bad.json" in refused(cli, "analyze", "run.json", "bad.json")


@pytest.mark.parametrize(
    ("outputs", "part"),
    [
        (["a.txt"], ".html, .json, .md"),
        (["a"], ".html, .json, .md"),
        (["a.JSON"], ".html, .json, .md"),
        (["missing/a.json"], "there is no folder missing"),
        (["run.json/a.json"], "there is no folder run.json"),
        (["/proc/a.json"], "/proc/a.json: cannot be written"),
        (["folder.json"], "not a regular file"),
        (["pipe.json"], "not a regular file"),
        (["full.json"], "is a symbolic link"),
        (["/dev/full"], "suffix"),
        (["run.json"], "is an input"),
        (["./run.json"], "is an input"),
        (["link.json"], "is an input"),
        (["a.json", "./a.json"], "given twice"),
        (["-", "-"], "given twice"),
        (["a.json", "b.txt"], "b.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_outputs_that_cannot_be(cli, trace, outputs, part):
    (cli.folder / "folder.json").mkdir()
    os.mkfifo(cli.folder / "pipe.json")
    (cli.folder / "full.json").symlink_to("/dev/full")
    (cli.folder / "link.json").symlink_to(trace)
    options = [option for output in outputs for option in ("-o", output)]
    assert part in refused(cli, "analyze", trace, "-f", *options)
    assert trace.read_bytes() == kineto.dumps(LOOP.scenario())


def test_outputs_are_refused_before_anything_is_read(cli):
    (cli.folder / "bad.json").write_text("not even a trace")
    assert "suffix" in refused(cli, "analyze", "bad.json", "-o", "a.txt")


def test_a_report_is_not_rendered_over_itself(cli, trace):
    cli("analyze", trace, "-q", "-o", "a.json").expect(0)
    assert "is an input" in refused(cli, "render", "a.json", "-f", "-o", "a.json")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--steps", "5"], "write A:B"),
        (["--steps", "a:b"], "write A:B"),
        (["--steps", "1:2:3"], "write A:B"),
        (["--steps", "-1:3"], "write A:B"),
        (["--steps", "5:3"], "is empty"),
        (["--steps", "4:4"], "is empty"),
        (["--steps", "100:200"], "usable are 0, 1, 2, 3, 4, 5, 6, 7, 8"),
        (["--step", "("], "not a regular expression"),
        (["--step", "no such range"], "matches 0 ranges"),
        (["--phase", "forward"], "NAME=REGEX"),
        (["--phase", "forward="], "NAME=REGEX"),
        (["--phase", "forwards=x"], "data, h2d, forward, backward, optimizer, communication"),
        (["--phase", "forward=("], "not a regular expression"),
        (["--rank", "7"], "no such rank; the inputs hold 0"),
        (["--rank", "one"], "--rank"),
        (["--unprofiled-step-ms", "0"], "must be a positive number of milliseconds"),
        (["--unprofiled-step-ms", "-3"], "must be a positive number of milliseconds"),
        (["--unprofiled-step-ms", "nan"], "--unprofiled-step-ms"),
        (["--unprofiled-step-ms", "inf"], "--unprofiled-step-ms"),
        (["--unprofiled-step-ms", "fast"], "--unprofiled-step-ms"),
        (["--open"], "--open needs an HTML output"),
        (["--no-such-option"], "--no-such-option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense(cli, trace, options, part):
    assert part in refused(cli, "analyze", trace, "-o", "a.json", *options)


def test_two_files_of_one_rank(cli, trace):
    from tests.builders.scenario import Process

    for name, steps in {"a": 5, "b": 6}.items():
        loop = replace(LOOP, steps=steps, process=Process(rank=3))
        write_trace(cli.folder / f"{name}.json", loop)
    message = refused(cli, "analyze", "a.json", "b.json")
    assert "a.json and b.json both say that they are rank 3" in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is not a result of traceprobe"),
        ("no JSON", "is not a result of traceprobe"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field"),
        ('{"a": ' * 50_000, "is not a result of traceprobe"),
        ("\xff\xfe", "is not a result of traceprobe"),
    ],
    ids=["empty", "text", "list", "object", "deep", "bytes"],
)
def test_render_of_something_else(cli, text, part):
    (cli.folder / "report.json").write_text(text, encoding="latin-1")
    message = refused(cli, "render", "report.json", "-o", "a.html")
    assert part in message
    assert "report.json" in message


WRITES = "as `traceprobe analyze TRACE -o report.json` writes"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("run.json", "is a trace, not a report.json"),
        ("run.json.gz", "is a trace, not a result of traceprobe"),
        ("run.sqlite", "is an export of Nsight Systems, not a result of traceprobe"),
        ("page.html", "is an HTML page, not a result of traceprobe"),
        ("other.json", "is not a report.json"),
    ],
)
def test_render_says_what_else_a_file_is_and_what_it_takes(cli, name, what):
    path = cli.folder / name
    if name.startswith("run"):
        write_trace(path)
    elif name == "page.html":
        cli("analyze", write_trace(cli.folder / "run.json"), "-q", "-o", name).expect(0)
    else:
        path.write_text('{"other": 1}')
    message = refused(cli, "render", name, "-o", "a.html")
    assert message.startswith(f"traceprobe: {name}: {what} {WRITES}")
    assert "malformed" not in message


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_report_in_the_place_of_a_trace_is_shown_by_the_command_that_is_told(cli, trace, packed):
    (cli.folder / "old runs").mkdir()
    report = cli.folder / "old runs" / "report.json"
    cli("analyze", trace, "-q", "-o", report).expect(0)
    given = Path("old runs/report.json.gz" if packed else "old runs/report.json")
    if packed:
        (cli.folder / given).write_bytes(gzip.compress(report.read_bytes()))
    command = re.search(r"`traceprobe (.*?)`", refused(cli, "analyze", given))[1]
    assert cli(*shlex.split(command)).expect(0).out.startswith("I/O-bound")


def test_the_library_says_that_a_file_is_absent(tmp_path):
    with pytest.raises(TraceprobeError, match=r"^run\.sqlite: is absent; check the path") as found:
        load(tmp_path / "run.sqlite")
    assert isinstance(found.value, FileNotFoundError)
    lost = or_lost(tmp_path / "run.sqlite", lambda: load(tmp_path / "run.sqlite"))
    assert lost == Lost("run.sqlite", str(found.value))


def test_render_of_another_schema_version(cli, trace):
    cli("analyze", trace, "-q", "-o", "a.json").expect(0)
    text = (cli.folder / "a.json").read_text(encoding="utf-8")
    (cli.folder / "a.json").write_text(
        text.replace('"schema_version": "1.0"', '"schema_version": "2.0"')
    )
    assert "schema version 2.0" in refused(cli, "render", "a.json", "-o", "a.html")
    (cli.folder / "a.json").write_text(
        text.replace('"schema_version": "1.0"', '"schema_version": "1.9"')
    )
    cli("render", "a.json", "-o", "a.html").expect(0)


def test_unknown_commands(cli):
    assert "analyse" in refused(cli, "analyse", "run.json")


@pytest.mark.skipif(sys.platform != "linux", reason="reads a file of the system that fails")
def test_a_file_of_a_folder_that_cannot_be_read_is_a_lost_rank(cli, trace, tmp_path):
    """It is named, too: what the system says of a read, unlike of an opening, has no name."""
    folder = tmp_path / "run"
    folder.mkdir()
    trace.rename(folder / "rank0.json")
    (folder / "rank1.json").symlink_to("/proc/self/mem")
    done = cli("analyze", folder, "-o", "-").expect(0)
    (lost,) = json.loads(done.out)["quality"]["lost"]
    assert lost["name"] == "rank1.json"
    assert "rank1.json: Input/output error" in done.err
    message = cli("analyze", folder / "rank1.json", "-o", "-").expect(2).err
    assert "rank1.json: Input/output error" in message

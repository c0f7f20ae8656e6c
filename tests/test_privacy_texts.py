"""What profilers note, what errors quote and how folders are called: none of it is private."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from tests.builders import kineto, nsight
from tests.builders.loop import Loop
from tests.cli_runner import loop_of_rank
from tests.memory_records import make_record
from tests.report_factory import make_report, without_calibration
from traceprobe.anonymise.redact import digest
from traceprobe.cli.runs import _folder as label_of
from traceprobe.compare.run import default_label
from traceprobe.ingest.nsight.open_export import _reason as reason_of
from traceprobe.ingest.profiler_messages import NOTES, quote_messages
from traceprobe.vocabulary import quoted

CANARY = "CNRY"
NOTE = f"CUPTI failed on {CANARY}1.example.org for {CANARY}2@10.20.30.41 in /home/{CANARY}3/run"
LOOP = Loop(steps=6, forward_ns=4_000_000, backward_ns=8_000_000, optimizer_ns=1_000_000)
OUTPUTS = ("a.html", "a.json", "a.md")


def written(cli, *arguments):
    """All that a command writes, standard error too."""
    outputs = [argument for name in OUTPUTS for argument in ("-o", name)]
    done = cli(*arguments, *outputs, "-f").expect(0)
    texts = {name: (cli.folder / name).read_text() for name in OUTPUTS}
    return texts | {"terminal": done.out, "messages": done.err}


def leaks(texts):
    return {name: text for name, text in texts.items() if CANARY in text}


def lost_kineto(folder):
    """A rank without GPU work, whose profiler says why."""
    kineto.write(loop_of_rank(0).scenario(), folder / "a.rank0.json")
    path = kineto.write(loop_of_rank(1).scenario(), folder / "b.rank1.json")
    trace = json.loads(path.read_text())
    kept = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"][:1]
    logged = [f"ERROR:2026-02-08 10:38:45 9483:9483 Cupti.cpp:83] {NOTE}"]
    notes = dict.fromkeys(("ERROR", "WARNING", "INFO"), logged)
    path.write_text(json.dumps({**trace, "traceEvents": kept, **notes}))
    return "a.rank0.json", "b.rank1.json"


def lost_nsight(folder):
    """The same in exports."""
    nsight.write(loop_of_rank(0).scenario(), folder / "a.rank0.sqlite")
    path = nsight.write(
        replace(loop_of_rank(1).scenario(), diagnostics=((0, 3, NOTE),)), folder / "b.rank1.sqlite"
    )
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    nsight.edit(path, *(f"DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_{name}" for name in tables))
    return "a.rank0.sqlite", "b.rank1.sqlite"


@pytest.mark.parametrize("make", [lost_kineto, lost_nsight])
@pytest.mark.parametrize("redact", [[], ["--redact"]])
def test_the_notes_of_a_lost_rank_are_told_without_names(cli, make, redact):
    names = make(cli.folder)
    texts = written(cli, "analyze", *names, "--jobs", "1", *redact)
    assert leaks(texts) == {}
    lost = json.loads(texts["a.json"])["quality"]["lost"]
    assert len(lost) == 1
    assert "said: CUPTI failed on … for … in …" in lost[0]["reason"]
    said_of = digest(names[1]) if redact else names[1]
    assert lost[0]["name"] == said_of
    assert lost[0]["reason"].startswith(f"{said_of}: ")
    assert f"warning: {lost[0]['reason']}" in texts["messages"]


@pytest.mark.parametrize("make", [lost_kineto, lost_nsight])
@pytest.mark.parametrize("command", ["analyze", "inspect", "slice"])
def test_no_message_of_an_error_quotes_them(cli, make, command):
    name = make(cli.folder)[1]
    more = ["--steps", "0:1", "-o", "c.json"] if command == "slice" else []
    assert "CUPTI failed on … for … in …" in cli(command, name, *more).expect(2).err
    assert CANARY not in cli(command, name, *more).err


def test_a_redacted_warning_of_an_unfinished_write_names_no_file(cli):
    nsight.write(LOOP.scenario(), cli.folder / f"{CANARY}9.sqlite")
    (cli.folder / f"{CANARY}9.sqlite-wal").write_bytes(b"x" * 5000)
    texts = written(cli, "analyze", f"{CANARY}9.sqlite", "--redact")
    assert leaks(texts) == {}
    assert "lies beside the export" in texts["a.json"]
    told = written(cli, "analyze", f"{CANARY}9.sqlite")["a.json"]
    assert f"{CANARY}9.sqlite-wal lies beside the export" in told


def test_a_redacted_report_does_not_name_the_class_of_an_optimizer(cli):
    record = {"memory": make_record(optimizer=f"{CANARY}Adam"), "unprofiled_step_ms": 13.0}
    kineto.write(LOOP.scenario(), cli.folder / "a.trace.json", header={"traceprobe": record})
    assert leaks(written(cli, "analyze", "a.trace.json", "--redact")) == {}
    assert CANARY in written(cli, "analyze", "a.trace.json")["a.json"]


def test_versions_of_tools_are_versions(cli):
    private = {"cupti_version": f"{CANARY}1", "cuda_runtime_version": [CANARY]}
    kineto.write(LOOP.scenario(), cli.folder / "a.trace.json", header=private)
    assert leaks(written(cli, "analyze", "a.trace.json")) == {}
    path = nsight.write(LOOP.scenario(), cli.folder / "a.sqlite")
    nsight.edit(path, f"UPDATE META_DATA_EXPORT SET value = '{CANARY}' WHERE name LIKE '%VERSION%'")
    assert leaks(written(cli, "analyze", "a.sqlite")) == {}


def test_an_error_of_sqlite_quotes_no_names():
    error = sqlite3.DatabaseError(f'malformed database schema ({CANARY}) - near "{CANARY}"')
    assert reason_of(error) == 'malformed database schema (…) - near "…"'


UNNAMED = default_label(without_calibration(make_report("io")))
UNNAMED_PAIR = [f"{UNNAMED} (1)", f"{UNNAMED} (2)"]
"""Runs that are called after their traces."""


@pytest.fixture
def home(cli, monkeypatch):
    """Somebody's home with a report in it and another beside it."""
    home = cli.folder / "home" / f"{CANARY}7"
    for folder, bound in ((home, "io"), (home / "other", "compute"), (home / f"{CANARY}8", "io")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(without_calibration(make_report(bound)).to_json())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", f"{CANARY}8")
    return home


@pytest.mark.parametrize(
    ("inside", "runs", "labels"),
    [
        ("", ["report.json", "other"], [UNNAMED, "other"]),
        ("", [".", "other/report.json"], [UNNAMED, "other"]),
        ("other", ["..", "."], UNNAMED_PAIR),
        ("other", ["../report.json", "../other"], UNNAMED_PAIR),
        ("..", [f"{CANARY}7", f"{CANARY}7/other"], [UNNAMED, "other"]),
        ("", [f"{CANARY}8", "other/"], [UNNAMED, "other"]),
        ("other", ["../other/report.json", f"../../{CANARY}7/report.json"], UNNAMED_PAIR),
    ],
)
def test_no_folder_that_is_nobody_elses_business_is_a_label(
    cli, home, monkeypatch, inside, runs, labels
):
    monkeypatch.chdir(home / inside)
    done = cli("compare", *runs, "-o", "-").expect(0)
    found = json.loads(done.out)
    assert [found["base"]["label"], found["new"]["label"]] == labels
    assert CANARY not in done.out


def test_a_report_in_a_home_is_told_without_its_name(cli, home, monkeypatch):
    monkeypatch.chdir(home)
    for command in (["whatif", "report.json"], ["ladder", "report.json", "other"]):
        done = cli(*command)
        assert CANARY not in done.out + done.err


@pytest.mark.parametrize(
    ("folder", "label"),
    [("/home/alice", None), ("/Users/alice", None), ("/", None), ("/data/fp32", "fp32")],
)
def test_a_home_is_no_label_whoevers_it_is(folder, label):
    assert label_of(Path(folder)) == label


@pytest.mark.parametrize("note", NOTES)
def test_notes_that_profilers_make_are_quoted_whole(note):
    assert quoted(note, most=1000) == note


def test_three_notes_are_enough():
    assert quote_messages(["CUPTI failed"] * 9) == " | ".join(["CUPTI failed"] * 3)


def test_comparisons_can_be_redacted_at_once(cli):
    for name, bound in ((f"{CANARY}1", "io"), (f"{CANARY}2", "compute")):
        report = without_calibration(make_report(bound))
        inputs = [with_fields(i, name=f"{CANARY}3.json") for i in report.inputs]
        (cli.folder / f"{name}.json").write_text(with_fields(report, inputs=inputs).to_json())
    runs = (f"{CANARY}1.json", f"{CANARY}2.json")
    for command in ("compare", "ladder", "gpus"):
        texts = written(cli, command, *runs, "--redact")
        assert leaks(texts) == {}
        assert digest(f"{CANARY}1") in texts["a.json"]
        assert CANARY in written(cli, command, *runs)["a.json"]

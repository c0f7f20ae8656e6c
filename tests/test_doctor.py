"""`traceprobe doctor` as a command: exit codes, outputs, widths, privacy; and its page."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as changed

from tests.analyses import REFUSED, part_of_file, trace_of
from tests.builders import nsight
from tests.canaries import (
    CANARY,
    KINETO_SAMPLES,
    NSIGHT_SAMPLES,
    canary_in_chrome_trace,
    canary_in_export,
)
from tests.cli_runner import LOOP, spawn, write_trace
from tests.conftest import ROOT, trace_files
from tests.machine_facts import BARE_MACHINE, GOOD_MACHINE
from traceprobe.doctor import examine, examine_machine, gather, machine, recorded, whole, written
from traceprobe.records.diagnosis import Diagnosis
from traceprobe.render import terminal
from traceprobe.render.pages.diagnosis import document

CHECKS = (*machine.CHECKS, *written.CHECKS, *recorded.CHECKS, *whole.CHECKS)
PAGE = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")


def test_ids_are_unique():
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_the_page_lists_the_checks_in_order():
    assert re.findall(r"^### (\S+)$", PAGE, re.MULTILINE) == [check.id for check in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_page_says_what_the_check_says(check):
    section = re.search(rf"^### {check.id}$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    assert " ".join(section.split()) == (
        f"- **Tests.** {check.tests} - **Meaning.** {check.meaning} - **Fix.** {check.fix}"
    )


def test_a_machine_without_trouble(cli, monkeypatch):
    monkeypatch.setattr(gather, "gather", lambda: GOOD_MACHINE)
    done = cli("doctor").expect(0)
    assert "environment" in done.out
    assert "torch" not in done.out
    done = cli("doctor", "-v").expect(0)
    assert "fail" not in done.out
    assert "ok torch: PyTorch 2.9.0+cu128 for CUDA 12.8" in done.out


def test_a_check_that_fails_is_exit_code_1(cli, monkeypatch):
    monkeypatch.setattr(gather, "gather", lambda: changed(GOOD_MACHINE, nsys="2024.6.2"))
    done = cli("doctor", "-v").expect(1)
    assert done.out.index("fail nsys:") < done.out.index("ok python:")
    assert "means:" in done.out
    assert "fix:" in done.out
    assert cli("doctor", "-q").expect(1).out == ""


@pytest.mark.parametrize("suffix", [".json", ".sqlite"])
def test_a_trace_is_checked(cli, suffix):
    trace = write_trace(cli.folder / f"run{suffix}")
    done = cli("doctor", trace)
    assert done.code in (0, 1)
    assert f"run{suffix}" in done.out
    assert str(cli.folder) not in done.out
    assert cli.files() == {trace.name}


def test_json_on_standard_output_is_alone_there(cli):
    trace = write_trace(cli.folder / "run.json")
    found = msgspec.json.decode(cli("doctor", trace, "-o", "-").out, type=Diagnosis)
    assert found.schema_version == Diagnosis.SCHEMA_VERSION
    assert [section.subject for section in found.sections] == ["run.json", "run"]
    listed = [c.id for c in (*written.CHECKS, *recorded.CHECKS)]
    assert [outcome.id for outcome in found.sections[0].checks] == listed


def test_json_in_a_file(cli):
    trace = write_trace(cli.folder / "run.json")
    done = cli("doctor", trace, "-o", "checks.json")
    assert "wrote checks.json" in done.err
    first = (cli.folder / "checks.json").read_text()
    assert json.loads(first)["sections"]
    refused = cli("doctor", trace, "-o", "checks.json").expect(2)
    assert "--force" in refused.err
    cli("doctor", trace, "-o", "checks.json", "-f")
    assert (cli.folder / "checks.json").read_text() == first


def test_an_input_that_cannot_be_read_is_exit_code_2(cli):
    (cli.folder / "bad.json").write_text("{")
    write_trace(cli.folder / "run.json")
    assert "bad.json" in cli("doctor", "run.json", "bad.json").expect(2).err
    assert "absent" in cli("doctor", "nothing.json").expect(2).err


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lines_fit(width, encoding):
    text = terminal.render(
        document(examine_machine(BARE_MACHINE)), width, color=False, encoding=encoding
    )
    assert max(map(len, text.splitlines())) <= width
    text.encode(encoding)
    assert "\x1b" not in text


@pytest.mark.slow
def test_colour_is_for_those_who_take_it(tmp_path):
    write_trace(tmp_path / "run.json")
    plain = spawn("doctor", "run.json", cwd=tmp_path, env={"COLUMNS": "60"}).out
    bare = spawn("doctor", "run.json", cwd=tmp_path, env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).out
    colour = spawn("doctor", "run.json", cwd=tmp_path, env={"FORCE_COLOR": "1"}).out
    assert "\x1b" not in plain + bare
    assert max(map(len, plain.splitlines())) <= 60
    assert "\x1b" in colour


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [KINETO_SAMPLES[0], KINETO_SAMPLES[2], NSIGHT_SAMPLES[0], NSIGHT_SAMPLES[2]]
)
def test_no_canary_in_any_output(cli, tmp_path, name):
    folder = tmp_path / CANARY
    folder.mkdir()
    data = (ROOT / "sample_traces" / name).read_bytes()
    trace = folder / name
    trace.write_bytes(canary_in_export(data) if ".sqlite" in name else canary_in_chrome_trace(data))
    for arguments in ((), ("-o", "-")):
        done = cli("doctor", trace, *arguments)
        assert done.code in (0, 1), done.err
        assert done.out
        assert CANARY not in (done.out + done.err).lower()


def test_diagnostics_of_nsight_are_never_quoted(tmp_path):
    text = f"CUPTI_ERROR in /home/{CANARY}/train.py"
    scenario = replace(LOOP.scenario(), diagnostics=((0, 3, text),))
    nsight.write(scenario, tmp_path / "run.sqlite")
    done = spawn("doctor", "run.sqlite", cwd=tmp_path)
    assert "CUPTI reported an error" in done.out
    assert CANARY not in done.out


@pytest.mark.slow
def test_the_environment_of_this_machine(tmp_path):
    done = spawn("doctor", "-o", "-", cwd=tmp_path)
    assert done.code in (0, 1), done.err
    [section] = json.loads(done.out)["sections"]
    assert [outcome["id"] for outcome in section["checks"]] == [c.id for c in machine.CHECKS]
    assert str(tmp_path) not in done.out


def test_no_false_alarms_on_what_traceprobe_recorded_itself():
    """Samples of a sound capture fail no check, and warn of little."""
    harmless = {"iterations", "observer-effect"}
    for name in ("profile_gpt2.sqlite.gz", "profile_unet.json.gz", "profile_tiny_mlp.json.gz"):
        [trace, run] = examine([ROOT / "sample_traces" / name]).sections
        loud = {c.id for c in (*trace.checks, *run.checks) if c.status in ("fail", "warn")}
        assert loud <= harmless, name


def test_every_file_of_the_corpus_is_examined(corpus_row, corpus, monkeypatch):
    """From its events on, which all tests of the corpus share."""
    paths = trace_files(corpus_row)
    try:
        parts = iter([part_of_file(path) for path in paths])
    except REFUSED:
        with pytest.raises(REFUSED):
            examine(paths)
        return
    monkeypatch.setattr("traceprobe.ingest.read_trace.read_trace", lambda path, _: trace_of(path))
    monkeypatch.setattr("traceprobe.pipeline.trace_part.part_of", lambda *_: next(parts))
    found = examine(paths)
    text = terminal.render(document(found), 60, color=False)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert not re.search(r"/(home|root|tmp|opt|usr|work|mnt)/", found.to_json())

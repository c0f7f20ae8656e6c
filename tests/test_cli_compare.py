"""`traceprobe compare` and `ladder` as commands: inputs of any kind, outputs, exit codes."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.cli_runner import loop_of_rank, write_trace
from tests.report_factory import PARTITIONS, make_rank, make_report, without_calibration


@pytest.fixture
def reports(tmp_path):
    for name, bound in (("before", "io"), ("after", "compute")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(
            without_calibration(make_report(bound)).to_json()
        )
    return tmp_path / "before", tmp_path / "after"


def test_two_reports_by_their_folders(cli, reports):
    done = cli("compare", *reports)
    assert "before → after" in done.expect(0).out
    assert "waiting for data" in done.out


def test_labels_are_the_callers(cli, reports):
    done = cli("compare", f"old={reports[0]}", f"new={reports[1] / 'report.json'}")
    assert "old → new" in done.expect(0).out


def test_equal_labels_are_told_apart(cli, reports):
    done = cli("compare", f"x={reports[0]}", f"x={reports[1]}", "-o", "-")
    found = json.loads(done.expect(0).out)
    assert (found["base"]["label"], found["new"]["label"]) == ("x (1)", "x (2)")


def test_files_of_one_name_are_called_after_their_folders(cli, tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        write_trace(tmp_path / name / "rank0.json", loop_of_rank(0))
    files = [tmp_path / name / "rank0.json" for name in ("before", "after")]
    assert "before → after" in cli("compare", *files).expect(0).out
    found = json.loads(cli("compare", files[0], files[0], "-o", "-").expect(0).out)
    assert (found["base"]["label"], found["new"]["label"]) == ("rank0 (1)", "rank0 (2)")


def test_traces_and_folders_of_ranks(cli, tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        write_trace(folder / f"rank{rank}.json", loop_of_rank(rank))
    done = cli("compare", folder / "rank0.json", folder, "-o", "-")
    found = json.loads(done.expect(0).out)
    assert (found["base"]["label"], found["new"]["label"]) == ("rank0", "ranks")
    assert (len(found["base"]["inputs"]), len(found["new"]["inputs"])) == (1, 2)


def test_a_regression_fails_the_gate_and_says_why(cli, reports):
    before, after = reports
    assert "Gate passed" in cli("compare", before, after, "--gate", "5%").expect(0).out
    done = cli("compare", after, before, "--gate", "5", "-q").expect(1)
    assert done.out == ""
    assert "gate: regression: The time of a step changed by +" in done.err


def test_a_gate_that_cannot_tell_fails_unless_that_is_allowed(cli, reports, tmp_path):
    few = tmp_path / "few.json"
    few.write_text(
        without_calibration(make_report(ranks=[make_rank(PARTITIONS["io"], steps=3)])).to_json()
    )
    done = cli("compare", few, few, "--gate", "5%").expect(1)
    assert "gate: inconclusive: 3 steps" in done.err
    cli("compare", few, few, "--gate", "5%", "--allow-inconclusive").expect(0)


@pytest.mark.parametrize("gate", ["", "five", "0", "-5%", "5%%", "inf"])
def test_a_gate_is_a_percentage(cli, reports, gate):
    assert "percentage" in cli("compare", *reports, f"--gate={gate}").expect(2).err


def test_inconclusive_needs_a_gate(cli, reports):
    done = cli("compare", *reports, "--allow-inconclusive").expect(2)
    assert "--gate" in done.err


def test_outputs_are_written_and_never_over_an_input(cli, reports, tmp_path):
    targets = [tmp_path / f"c.{suffix}" for suffix in ("html", "md", "json")]
    options = [part for target in targets for part in ("-o", target)]
    cli("compare", *reports, *options).expect(0)
    assert all(target.stat().st_size for target in targets)
    assert "exists" in cli("compare", *reports, *options).expect(2).err
    source = reports[0] / "report.json"
    done = cli("compare", source, reports[1], "-o", source, "-f").expect(2)
    assert "is an input" in done.err


def test_the_same_page_comes_out_of_the_json(cli, reports, tmp_path):
    cli("compare", *reports, "-o", tmp_path / "c.json", "-o", tmp_path / "c.html").expect(0)
    cli("render", tmp_path / "c.json", "-o", tmp_path / "again.html").expect(0)
    assert (tmp_path / "c.html").read_bytes() == (tmp_path / "again.html").read_bytes()


@pytest.mark.parametrize("name", ["absent.json", "x=absent.json"])
def test_an_absent_run_is_named(cli, reports, name):
    assert "absent.json" in cli("compare", reports[0], name).expect(2).err


def test_a_run_without_steps_is_refused(cli, reports, tmp_path):
    rank = make_rank(PARTITIONS["io"])
    summary = replace(rank.summary, iterations_used=0, step_ms=None)
    rank = replace(rank, iterations=[], step_marker=None, summary=summary, gaps=[])
    other = tmp_path / "other.json"
    other.write_text(make_report(ranks=[rank]).to_json())
    done = cli("compare", reports[0], other).expect(2)
    assert "other: has 0 complete steps" in done.err


def test_a_ladder_of_reports(cli, reports, tmp_path):
    done = cli("ladder", *reports, "--name", "mine", "-o", tmp_path / "l.json").expect(0)
    assert "mine: 7.7× faster after 1 change" in done.out
    found = json.loads((tmp_path / "l.json").read_text())
    assert found["kind"] == "ladder"
    assert [rung["run"]["label"] for rung in found["rungs"]] == ["before", "after"]


def test_the_job_summary_gets_the_markdown(cli, reports, tmp_path, monkeypatch):
    target = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    cli("compare", *reports, "--github-summary", "-q").expect(0)
    assert "before → after" in target.read_text()

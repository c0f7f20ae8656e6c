"""A redacted report has the same numbers and none of the names."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tests.analyses import report_of, runs
from tests.canaries import CANARY, canary_in_chrome_trace, canary_in_export, canary_in_names
from tests.cli_runner import environment, spawn
from traceprobe.anonymise.redact import digest, redact
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.report import Report

LEAST = 6
"""Shorter names, such as `step`, are words that a report uses itself."""


def names_of(report: Report) -> set[str]:
    found = {i.name for i in report.inputs}
    for rank in report.ranks:
        found |= {k.name for k in rank.summary.top_kernels}
        found |= {n for gap in rank.gaps for n in (gap.before, gap.after) if n}
        found |= {i.label for i in rank.iterations}
        found |= {*rank.picture.names, *(thread.name for thread in rank.picture.threads)}
        found |= {*rank.tree.names} - {*PARTITION}
    ours = re.compile(r"\d+|forward|backward|iteration \d+")  # words that pages say themselves
    return {n for n in found if len(n) >= LEAST and not ours.fullmatch(n)}


@pytest.mark.parametrize("run", runs())
def test_no_name_is_left_in_any_output(run):
    report = report_of(*runs()[run])
    names = names_of(report) - {"optimizer", "communication"}
    assert names
    hidden = redact(report)
    text = hidden.to_json() + hidden.to_markdown() + hidden.to_html().split("traceprobe-charts")[0]
    assert [name for name in names if name in text] == []


def test_numbers_stay():
    report = report_of(*next(iter(runs().values())))
    hidden = redact(report)
    assert hidden.verdict == report.verdict
    assert [r.summary.partition_ns for r in hidden.ranks] == [
        r.summary.partition_ns for r in report.ranks
    ]
    assert msgspec.to_builtins(hidden.quality) == msgspec.to_builtins(report.quality)


def test_equal_names_stay_equal():
    assert digest("volta_sgemm") == digest("volta_sgemm") != digest("volta_dgemm")


def test_the_command_redacts(cli, samples, tmp_path):
    source = samples / "h200_unet_w1.json.gz"
    cli("analyze", source, "-q", "--redact", "-o", "report.json").expect(0)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["inputs"][0]["name"] == digest(source.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["profile_unet.json.gz", "profile_wide_mlp.sqlite.gz"])
def test_no_canary_in_any_name_is_left(cli, samples, tmp_path, name):
    """A canary in every text of a trace, in every name and in that of the file."""
    data = (samples / name).read_bytes()
    nsys = ".sqlite" in name
    planted = canary_in_names(
        canary_in_export(data) if nsys else canary_in_chrome_trace(data), nsys
    )
    source = tmp_path / f"{CANARY}.{name}"
    source.write_bytes(planted)
    outputs = [argument for kind in ("html", "json", "md") for argument in ("-o", f"a.{kind}")]
    done = cli("analyze", source.name, *outputs, "--redact").expect(0)
    cli("whatif", "a.json", "-o", "b.md", "-q").expect(0)
    texts = {path.name: path.read_text() for path in tmp_path.glob("[ab].*")}
    texts |= {"terminal": done.out, "messages": done.err}
    assert len(texts) == 6
    assert [kind for kind, text in texts.items() if CANARY in text.lower()] == []
    assert json.loads(texts["a.json"])["verdict"]["bound"] != "inconclusive"


def test_the_summary_of_a_job_is_appended(samples, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    options = ("-q", "--github-summary", "-o", "report.md")
    job = environment(GITHUB_STEP_SUMMARY=str(summary))
    spawn("analyze", samples / "h200_unet_w1.json.gz", *options, cwd=tmp_path, env=job).expect(0)
    assert summary.read_text() == "before\n" + (tmp_path / "report.md").read_text()


def test_without_a_job_there_is_no_summary_to_append_to(samples, tmp_path):
    source = samples / "h200_unet_w1.json.gz"
    none = environment(GITHUB_STEP_SUMMARY="")
    done = spawn("analyze", source, "-q", "--github-summary", cwd=tmp_path, env=none).expect(2)
    assert "GITHUB_STEP_SUMMARY is not set" in done.err

"""`traceprobe analyze --ablation`: both verdicts in one report."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import traceprobe
from tests.cli_runner import write_trace
from tests.report_factory import make_ablation
from tests.report_rules import problems


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "run.json")


@pytest.fixture
def bench(tmp_path):
    def write(ablation):
        path = tmp_path / "bench.json"
        path.write_text(ablation.to_json() if hasattr(ablation, "to_json") else ablation)
        return path

    return write


def codes(report):
    return [warning["code"] for warning in report["quality"]["warnings"]]


def test_the_report_holds_the_ablation(cli, trace, bench):
    done = cli("analyze", trace, "--ablation", bench(make_ablation()), "-o", "-").expect(0)
    assert problems(done.out) == []
    report = json.loads(done.out)
    assert report["ablation"] == json.loads(make_ablation().to_json())
    assert report["verdict"]["bound"] == "io"
    assert "ablation-disagrees" not in codes(report)
    without = json.loads(cli("analyze", trace, "-o", "-").expect(0).out)
    assert without["ablation"] is None
    # What it measured of a finding stands beside the prediction, and nothing else changes.
    told = [line for f in report["findings"] for line in f["evidence"] if "ablation" in line]
    assert told
    for finding in report["findings"]:
        finding["evidence"] = [line for line in finding["evidence"] if line not in told]
    assert {**report, "ablation": None} == without


def test_a_disagreement_is_a_warning_and_leaves_the_verdict(cli, trace, bench):
    path = bench(make_ablation("communication"))
    done = cli("analyze", trace, "--ablation", path, "-o", "out.json").expect(0)
    report = json.loads((cli.folder / "out.json").read_text())
    assert problems((cli.folder / "out.json").read_text()) == []
    assert report["verdict"]["bound"] == "io"
    (said,) = (
        w["message"] for w in report["quality"]["warnings"] if w["code"] == "ablation-disagrees"
    )
    assert "Communication-bound (I/O 2.7 %" in said
    assert "the trace says I/O-bound (I/O" in said
    assert "by ablation: Communication-bound" in done.out


def test_rendering_again_gives_the_same_bytes(cli, trace, bench):
    path = bench(make_ablation("communication"))
    outputs = ("-o", "a.json", "-o", "a.html", "-o", "a.md")
    # All of it: what fits 25 lines depends on how many commands are proposed next.
    first = cli("analyze", trace, "--ablation", path, *outputs, "--verbose").expect(0)
    again = cli("render", "a.json", "--verbose").expect(0)
    assert again.out.partition("next, ")[0] == first.out.partition("next, ")[0]
    cli("render", "a.json", "-o", "b.html", "-o", "b.md").expect(0)
    for suffix in ("html", "md"):
        one, other = ((cli.folder / f"{name}.{suffix}").read_text() for name in "ab")
        assert one == other
        assert "by ablation" in one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not an ablation as `traceprobe bench -o` writes it"),
        ("[]", "is not an ablation"),
        ("{}", "is not an ablation"),
        ("\0\1", "is not an ablation"),
        ("[" * 100_000, "is not an ablation"),
        (make_ablation().to_json().replace('"io"', '"disk"'), "is not an ablation"),
        (make_ablation(schema_version="2.0").to_json(), "schema version 2.0"),
    ],
    ids=["empty", "list", "object", "binary", "deep", "unknown-name", "later"],
)
def test_what_is_no_ablation_is_refused(cli, trace, bench, text, message):
    path = bench(text)
    before = cli.files()
    done = cli("analyze", trace, "--ablation", path).expect(2)
    assert "bench.json" in done.err
    assert message in done.err
    assert cli.files() == before


def test_an_ablation_is_shown_again_in_the_terminal(cli, bench):
    path = bench(make_ablation())
    assert "by ablation" in cli("render", path).expect(0).out
    done = cli("render", path, "-o", "page.html").expect(2)
    assert "analyze TRACE --ablation bench.json" in done.err
    assert not (cli.folder / "page.html").exists()


def test_an_ablation_without_shares_has_no_gap(cli, bench):
    measured = make_ablation()
    unknown = replace(measured.oracle, shares=dict.fromkeys(measured.oracle.shares))
    said = cli("render", bench(replace(measured, oracle=unknown))).expect(0).out
    assert "\n\n\n" not in said


def test_a_report_is_no_ablation(cli, trace):
    cli("analyze", trace, "-o", "report.json").expect(0)
    done = cli("analyze", trace, "--ablation", "report.json").expect(2)
    assert "report.json: is not an ablation" in done.err


def test_a_file_that_is_not_there(cli, trace):
    assert "absent.json" in cli("analyze", trace, "--ablation", "absent.json").expect(2).err


def test_the_ablation_is_an_input_and_not_overwritten(cli, trace, bench):
    path = bench(make_ablation())
    done = cli("analyze", trace, "--ablation", path, "-o", path, "--force").expect(2)
    assert "is an input" in done.err
    assert path.read_text() == make_ablation().to_json()


def test_the_library_takes_it_too(trace):
    options = traceprobe.Options(ablation=make_ablation())
    report = traceprobe.analyze(traceprobe.load(trace), options)
    assert report.ablation == make_ablation()
    assert traceprobe.Report.from_json(report.to_json()) == report

"""`traceprobe scaling` as it is called: runs in, outputs, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.scaling_runs import run_of
from traceprobe.compare.scaling import scale

PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.fixture
def saved(tmp_path):
    """Reports of 1, 2 and 4 ranks."""
    runs = [run_of(1), run_of(2, transfer=8), run_of(4, transfer=11, skew=2)]
    names = []
    for run in runs:
        names.append(f"{run.world_size}.json")
        Path(tmp_path / names[-1]).write_text(run.report.to_json(), encoding="utf-8")
    return names


def test_json_on_standard_output_is_the_record(cli, saved):
    done = cli("scaling", *saved, "-o", "-", "-q").expect(0)
    record = json.loads(done.out)
    assert record["kind"] == "scaling"
    assert [p["world_size"] for p in record["points"]] == [1, 2, 4]
    assert record["points"][2]["losses_ms"]["skew"] == pytest.approx(2, abs=2e-4)
    assert done.err == ""


def test_the_terminal_says_how_it_scales(cli, saved):
    done = cli("scaling", "one=1.json", "four=4.json").expect(0)
    assert "4 ranks do the work of 3.54, weak scaling from 1 rank" in done.out
    assert "waiting for ranks" in done.out
    assert cli.files() == set(saved)


def test_a_saved_record_renders_again(cli, saved):
    cli("scaling", *saved, "-o", "s.json", "-o", "s.md", "-q").expect(0)
    cli("render", "s.json", "-o", "again.md", "-q").expect(0)
    assert Path("again.md").read_text() == Path("s.md").read_text()


def test_sizes_and_nodes_reach_the_model(cli, saved):
    asked = ["--to", "8", "--to", "16", "--gpus-per-node", "8"]
    record = json.loads(cli("scaling", *saved, *asked, "-o", "-", "-q").expect(0).out)
    assert [p["world_size"] for p in record["predictions"]] == [8, 16]


def test_traces_of_all_ranks_are_a_run(cli, tmp_path):
    one = run_of(1, samples=8, name="wide-mlp", forward=1, backward=5, optimizer=1)
    Path(tmp_path / "1.json").write_text(one.report.to_json(), encoding="utf-8")
    traces = ROOT / "sample_traces" / "profile_wide_mlp.rank*.json.gz"
    record = json.loads(cli("scaling", "1.json", f"two={traces}", "-o", "-", "-q").expect(0).out)
    assert [(p["world_size"], p["run"]["label"]) for p in record["points"]][1] == (2, "two")
    assert [(f["algorithm"], f["latency_us"]) for f in record["fits"]] == [
        ("ring", None),
        ("tree", None),
    ]
    assert record["points"][1]["transfer_ms"] > record["points"][1]["exposed_ms"] > 0
    steps = [prediction["step_ms"] for prediction in record["predictions"]]
    assert record["points"][1]["step_ms"] < steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1.json"], "at least two world sizes"),
        (["1.json", "a=2.json", "b=2.json"], "a and b both ran on 2 ranks"),
        (["1.json", "2.json", "--mode", "strong"], "which is weak scaling"),
        (["1.json", "2.json", "--mode", "both"], "'both' is not one of 'weak', 'strong'"),
        (["1.json", "2.json", "--inter-node-gbps", "50"], "needs --gpus-per-node"),
        (
            ["1.json", "2.json", "--gpus-per-node", "8", "--inter-node-gbps", "0"],
            "--inter-node-gbps 0",
        ),
        (["1.json", "2.json", "--to", "0"], "--to"),
        (["1.json", "none.json"], "none.json"),
        (["1.json", "2.json", "-o", "1.json", "-f"], "is an input"),
    ],
)
def test_what_cannot_be_done_is_said(cli, saved, arguments, message):
    done = cli("scaling", *arguments).expect(2)
    assert message in " ".join(done.err.split())
    assert done.out == ""


def test_every_caution_is_documented():
    every = [
        scale([run_of(2, transfer=9, matched=False, host=9, unprofiled_ms=105), run_of(4)]),
        scale([run_of(1, samples=64), run_of(2, samples=96)], "weak"),
    ]
    codes = {caution.code for scaling in every for caution in scaling.cautions}
    assert len(codes) >= 5
    source = (ROOT / "traceprobe" / "compare" / "scaling_text.py").read_text(encoding="utf-8")
    for code in codes:
        assert f'"{code}"' in source
    assert [code for code in codes if f"`{code}`" not in PAGE] == []


def test_every_field_is_documented():
    record = json.loads(scale([run_of(1), run_of(2, transfer=5)]).to_json())
    table = PAGE.partition("## The JSON")[2]
    fields = {*record, *record["points"][0], *record["held_out"][0], *record["predictions"][0]}
    told = {"kind", "schema_version", "traceprobe_version"}
    assert sorted(f for f in fields - told if f"`{f}`" not in table) == []

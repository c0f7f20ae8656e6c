"""`traceprobe whatif` as it is called: a run in, outputs, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.replay import scenario as changes

PAGE = (ROOT / "docs" / "whatif.md").read_text(encoding="utf-8")
UNET = str(ROOT / "sample_traces" / "h200_unet_w1.json.gz")
RANKS = str(ROOT / "sample_traces" / "h200_collectives.rank*.json.gz")


def test_a_trace_with_changes_is_a_record(cli):
    asked = ["--remove", "data-wait", "--overlap", "h2d", "--speedup", "backward=1.3"]
    record = json.loads(cli("whatif", UNET, *asked, "-o", "-", "-q").expect(0).out)
    assert record["kind"] == "whatif"
    assert record["asked"]["changes"] == [
        "no waiting for data",
        "copies to the GPU hidden",
        "backward 1.3× as fast",
    ]
    assert len(record["alone"]) == 3
    assert record["asked"]["step_ms"] < record["alone"][0]["step_ms"] < record["now_ms"]
    assert record["asked"]["low_ms"] <= record["asked"]["step_ms"] <= record["asked"]["high_ms"]


def test_a_report_says_the_same_as_its_trace(cli):
    cli("analyze", UNET, "-o", "r.json", "-q").expect(0)
    asked = ["--remove", "data-wait", "-o", "-", "-q"]
    from_report = json.loads(cli("whatif", "a=r.json", *asked).expect(0).out)
    from_trace = json.loads(cli("whatif", f"a={UNET}", *asked).expect(0).out)
    assert from_report == from_trace


def test_the_terminal_shows_what_single_changes_would_give(cli):
    done = cli("whatif", UNET).expect(0)
    assert "The best single change, no waiting for data, would make it" in " ".join(
        done.out.split()
    )
    assert "No effect on the step: " in cli("whatif", UNET, "-v").expect(0).out
    assert cli.files() == set()


def test_two_steps_can_be_played_as_a_report_plays_them(cli):
    cli("slice", UNET, "--steps", "2:4", "-o", "two.json.gz", "-q").expect(0)
    done = cli("whatif", "two.json.gz", "--remove", "data-wait", "-o", "-", "-q").expect(0)
    record = json.loads(done.out)
    assert record["run"]["steps"] == 2
    assert record["asked"]["step_ms"] < record["now_ms"]


def test_a_saved_record_renders_again(cli):
    cli("whatif", UNET, "--remove", "host", "-o", "w.json", "-o", "w.md", "-q").expect(0)
    cli("render", "w.json", "-o", "again.md", "-o", "again.html", "-q").expect(0)
    assert Path("again.md").read_text() == Path("w.md").read_text()
    assert "How far to trust it" in Path("again.html").read_text()


def test_buckets_of_ranks_with_sizes(cli):
    done = cli("whatif", RANKS, "--bucket-mb", "1000", "-o", "-", "-q")
    record = json.loads(done.expect(0).out)
    assert record["buckets"]["limit_mb"] == 1000
    assert len(record["buckets"]["bytes"]) < len(record["buckets"]["before_bytes"])
    assert sum(record["buckets"]["bytes"]) == pytest.approx(
        sum(record["buckets"]["before_bytes"]), abs=8
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--remove", "magic"], "--remove magic: not one of"),
        (["--overlap", "forward"], "--overlap forward: not one of communication"),
        (["--speedup", "backward"], "write PART=FACTOR"),
        (["--speedup", "backward=0"], "write PART=FACTOR"),
        (["--speedup", "backward=inf"], "write PART=FACTOR"),
        (["--speedup", "magic=2"], "--speedup magic: not one of"),
        (["--bucket-mb", "-1"], "--bucket-mb -1: must be"),
        (["--bucket-mb", "nan"], "--bucket-mb nan: must be"),
        (["--bucket-mb", "25"], "the sizes of the all-reduces are not in the trace"),
        (["--remove", "recompute"], "recompute: the run has none"),
        (["--accumulate", "0"], "--accumulate"),
    ],
)
def test_what_cannot_be_done_is_said(cli, arguments, message):
    done = cli("whatif", UNET, *arguments).expect(2)
    assert message in " ".join(done.err.split())
    assert done.out == ""


def test_a_cpu_run_cannot_be_played(cli):
    done = cli("whatif", str(ROOT / "sample_traces" / "profile_unet.json.gz"), "--remove", "sync")
    cpu = cli("whatif", str(ROOT / "sample_traces" / "cpu_convnet.json.gz")).expect(2)
    assert "a run on a CPU cannot be played" in " ".join(cpu.err.split())
    assert done.code in (0, 2)


def test_everything_that_can_be_named_is_documented():
    for name in {*changes.REMOVABLE, *changes.SPEEDABLE} - set(COMPUTE_PHASES):
        assert f"`{name}`" in PAGE or f"--remove {name}" in PAGE, name
    source = (ROOT / "traceprobe" / "whatif" / "summary.py").read_text(encoding="utf-8")
    codes = re.findall(r'Message\(\s*"([a-z-]+)"', source)
    assert len(codes) >= 5
    assert [code for code in codes if f"`{code}`" not in PAGE] == []

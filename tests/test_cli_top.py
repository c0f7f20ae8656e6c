"""`traceprobe top` as it is called: what owns the time, from a trace or from its report."""

from __future__ import annotations

import re

import pytest

from tests.cli_runner import Cli
from tests.conftest import ROOT

UNET = str(ROOT / "sample_traces" / "h200_unet_w1.json.gz")
EXPORT = str(ROOT / "sample_traces" / "h200_gpt2_bf16.sqlite.gz")
CPU = str(ROOT / "sample_traces" / "cpu_convnet.json.gz")
RANKS = str(ROOT / "sample_traces" / "h200_collectives.rank*.json.gz")
SHARE = re.compile(r" ([\d.]+) % ")


@pytest.fixture
def cli(tmp_path, monkeypatch, capfdbinary):
    return Cli(tmp_path, monkeypatch, capfdbinary)


def rows_of(text):
    """The lines of the table that hold a share."""
    table = text.partition("\nms a step by ")[2]
    return [line for line in table.split("\n") if SHARE.search(line)]


@pytest.mark.parametrize("by", ["module", "operator", "kernel", "class"])
def test_all_rows_together_are_the_step(cli, by):
    done = cli("top", UNET, "--by", by, "-n", "1000").expect(0)
    shares = [float(SHARE.search(row)[1]) for row in rows_of(done.out)]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.1)
    assert shares == sorted(shares, reverse=True)


def test_a_report_says_the_same_as_its_trace(cli):
    cli("analyze", UNET, "-o", "r.json", "-q").expect(0)
    asked = ["--by", "operator", "-n", "3"]
    from_report = cli("top", "r.json", *asked).expect(0).out
    assert from_report == cli("top", UNET, *asked).expect(0).out
    assert len(rows_of(from_report)) == 3
    assert "aten::convolution_backward" in from_report


@pytest.mark.parametrize(
    ("trace", "by", "words"),
    [
        (UNET, "module", "record modules with torch.profiler.profile(with_stack=True)"),
        (EXPORT, "module", "these are NVTX ranges of the program"),
        (EXPORT, "operator", "torch.autograd.profiler.emit_nvtx()"),
        (CPU, "operator", "--by kernel lists them"),
    ],
)
def test_a_level_that_is_missing_is_named_with_how_to_record_it(cli, trace, by, words):
    done = cli("top", trace, "--by", by).expect(0)
    assert words.lower() in " ".join(done.out.split()).lower()


def test_a_level_that_is_there_has_no_note(cli):
    assert "note:" not in cli("top", UNET, "--by", "operator").expect(0).out


def test_a_rank_is_chosen(cli):
    assert cli("top", RANKS, "--rank", "1").expect(0).out.startswith("Rank 1:")
    done = cli("top", RANKS, "--rank", "9").expect(2)
    assert "of rank 9; there is one of rank 0, 1" in done.err


def test_a_redacted_table_has_no_names(cli):
    text = cli("top", UNET, "--redact").expect(0).out
    assert "convolution" not in text
    assert len(rows_of(text)) > 5

"""`traceprobe top` as it is called: what owns the time, from a trace or from its report."""

from __future__ import annotations

import csv
import json
import re

import pytest

from tests.builders import kineto
from tests.builders.scenario import Script
from tests.conftest import ROOT
from traceprobe.render.pages.top import COLUMNS

UNET = str(ROOT / "sample_traces" / "h200_unet_w1.json.gz")
EXPORT = str(ROOT / "sample_traces" / "h200_gpt2_bf16.sqlite.gz")
CPU = str(ROOT / "sample_traces" / "cpu_convnet.json.gz")
RANKS = str(ROOT / "sample_traces" / "h200_collectives.rank*.json.gz")
SHARE = re.compile(r" ([\d.]+) % ")


def rows_of(text):
    """The lines of the table that hold a share."""
    table = text.partition("\nms a step by ")[2]
    return [line for line in table.split("\n") if SHARE.search(line)]


@pytest.mark.parametrize("by", ["line", "operator", "kernel", "class"])
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


def test_modules_are_listed_with_those_in_them_and_alone(cli, tmp_path):
    script = Script()
    script.operator("nn.Module: Net_0", 1_000, 9_000)
    script.operator("nn.Module: Linear_0", 2_000, 5_000)
    script.op("kernel", 3_000_000, 7_000_000, (2_300, 2_400), name="gemm")
    script.op("kernel", 7_000_000, 8_000_000, (6_300, 6_400), name="bias")
    kineto.write(script.build(), tmp_path / "t.json")
    cli("top", "t.json", "--by", "module", "-o", "top.csv", "-q").expect(0)
    with (tmp_path / "top.csv").open(newline="", encoding="utf-8") as file:
        found = {row["owner"]: row for row in csv.DictReader(file)}
    assert float(found["Net_0"]["busy_ms"]) == 5
    assert float(found["Net_0"]["operations"]) == 2
    assert float(found["Net_0"]["own_ms"]) == 1
    assert float(found["Net_0 / Linear_0"]["busy_ms"]) == 4
    assert float(found["Net_0 / Linear_0"]["own_ms"]) == 4
    text = cli("top", "t.json", "--by", "module").expect(0).out
    assert re.search(r"module +busy +idle +share +own +ops +waits", text)


def test_files_have_all_rows_and_json_is_the_same_as_csv(cli, tmp_path):
    done = cli("top", UNET, "--by", "kernel", "-o", "k.csv", "-o", "k.json", "-o", "-").expect(0)
    rows = json.loads(done.out)
    assert len(rows) > 20
    assert rows == json.loads((tmp_path / "k.json").read_text(encoding="utf-8"))
    with (tmp_path / "k.csv").open(newline="", encoding="utf-8") as file:
        table = [*csv.DictReader(file)]
    assert [row["owner"] or None for row in table] == [row["owner"] for row in rows]
    assert tuple(rows[0]) == tuple(table[0]) == COLUMNS
    assert sum(row["own_ms"] for row in rows) == pytest.approx(110.36, abs=0.05)
    assert [float(row["busy_ms"]) for row in table] == [row["busy_ms"] for row in rows]
    few = cli("top", UNET, "--by", "kernel", "-n", "2", "-o", "-").expect(0)
    assert json.loads(few.out) == rows[:2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("top.html", ".csv, .json, or - for JSON"),
        ("there.csv", "--force"),
        ("no/x.csv", "no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(cli, tmp_path, name, words):
    (tmp_path / "there.csv").write_text("mine", encoding="utf-8")
    assert words in cli("top", UNET, "-o", name).expect(2).err
    assert (tmp_path / "there.csv").read_text(encoding="utf-8") == "mine"

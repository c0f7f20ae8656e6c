"""Reports of real and built traces keep the contract of docs/report-json.md."""

from __future__ import annotations

import json
import re

import pytest

import traceprobe
from tests.analyses import REFUSED, SAMPLES, report_of
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING, Loop
from tests.builders.scenario import Process
from tests.conftest import trace_files
from tests.report_rules import problems
from traceprobe.findings import RULES
from traceprobe.records.report import Report

IDS = sorted(RULES)
MS = 1_000_000
SMALL = {"forward_ns": 4 * MS, "backward_ns": 8 * MS, "optimizer_ns": MS}
LOOPS = {
    "plain": Loop(steps=8, **SMALL),
    "everything": EVERYTHING,
    "waits": Loop(steps=8, data_wait_ns=30 * MS, wait="loader", **SMALL),
    "communicates": Loop(steps=8, comm_ns=9 * MS, comm_overlap_ns=MS, world_size=2, **SMALL),
    "too-short": Loop(steps=3, **SMALL),
    "inference": Loop(steps=8, forward_ns=4 * MS, d2h_ns=MS),
    "utc-like": Loop(steps=8, start_ns=1_795_219_808_747_955_856, **SMALL),
}


def analyzed(*paths, **options):
    return traceprobe.analyze([traceprobe.load(p) for p in paths], traceprobe.Options(**options))


def built(loop, folder, nsys=False):
    return (nsight if nsys else kineto).write(loop.scenario(), folder / "trace")


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.name)
def test_samples(file):
    report = report_of(file)
    assert problems(report.to_json()) == []
    assert sorted(finding.id for finding in report.findings) == IDS


def test_corpus(corpus, corpus_row):
    try:
        report = report_of(*trace_files(corpus_row))
    except REFUSED:
        assert not corpus_row["expected"]
        return
    assert problems(report.to_json()) == []
    assert sorted(finding.id for finding in report.findings) == IDS


@pytest.mark.parametrize("nsys", [False, True], ids=["kineto", "nsight"])
@pytest.mark.parametrize("loop", LOOPS)
def test_built_traces(tmp_path, loop, nsys):
    assert problems(analyzed(built(LOOPS[loop], tmp_path, nsys)).to_json()) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_reading_a_report_back_changes_no_byte(tmp_path, loop):
    report = analyzed(built(LOOPS[loop], tmp_path))
    again = Report.from_json(report.to_json())
    assert again == report
    assert again.to_json() == report.to_json()


@pytest.mark.parametrize(
    "options",
    [
        {"unprofiled_step_ms": 12.0},
        {"unprofiled_step_ms": 100.0},
        {"unprofiled_step_ms": 1.2},
        {"steps": (1, 3)},
        {"steps": (1, 6)},
        {"step": "^step"},
        {"phases": {"forward": "nothing is called that"}},
    ],
    ids=str,
)
def test_options_keep_the_contract(tmp_path, options):
    assert problems(analyzed(built(LOOPS["communicates"], tmp_path), **options).to_json()) == []


def two_ranks(folder):
    loop = LOOPS["communicates"]
    slow = Loop(**{**vars(loop), "data_wait_ns": 9 * MS, "comm_ns": 2 * MS})
    for rank, one in enumerate((loop, slow)):
        one = Loop(**{**vars(one), "process": Process(pid=1000 + rank, rank=rank)})
        yield kineto.write(one.scenario(), folder / f"rank{rank}.json")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_several_ranks(tmp_path, order):
    files = list(two_ranks(tmp_path))
    report = analyzed(*(files[i] for i in order))
    assert problems(report.to_json()) == []
    assert [rank.rank for rank in report.ranks] == list(order)
    assert report.run.world_size == 2
    assert report.run.straggler_rank == 1


def test_the_same_input_gives_the_same_bytes(tmp_path):
    path = built(LOOPS["everything"], tmp_path)
    assert analyzed(path).to_json() == analyzed(path).to_json()


def test_a_report_holds_no_folder(tmp_path):
    text = analyzed(built(LOOPS["everything"], tmp_path)).to_json()
    assert tmp_path.name not in text
    assert not re.search(r'"/|/home/|/tmp/', text)


def test_times_count_from_the_origin_of_their_input(tmp_path):
    loop = LOOPS["utc-like"]
    report = analyzed(built(loop, tmp_path, nsys=True))
    (low, high), *_ = loop.expected().windows
    zero = int(report.inputs[0].origin_ns)
    first = report.ranks[0].iterations[0]
    assert (zero + first.start_ns, zero + first.end_ns) == (low, high)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r["ranks"][0]["summary"].update(window_ns=1), "does not sum"),
        (lambda r: r["verdict"]["shares"].update(io=0.9), "verdict.shares"),
        (lambda r: r["findings"].reverse(), "findings are out of order"),
        (lambda r: r["findings"].append(r["findings"][-1]), "repeated"),
        (lambda r: r["ranks"][0]["gaps"].reverse(), "gaps are out of order"),
        (lambda r: r["ranks"].append(r["ranks"][0]), "ranks are out of order"),
        (lambda r: r["ranks"][0]["iterations"][2].update(used=False), "used and skipped"),
        (lambda r: r["verdict"].update(bound="mixed"), "mixed"),
        (lambda r: r["quality"].update(gpu_ops=None), "schema"),
    ],
)
def test_the_rules_see_what_breaks_them(tmp_path, change, complaint):
    report = json.loads(analyzed(built(LOOPS["waits"], tmp_path)).to_json())
    change(report)
    text = json.dumps(report, sort_keys=True, indent=1) + "\n"
    assert any(complaint in problem for problem in problems(text))


def test_the_rules_see_unsorted_keys_and_nan(tmp_path):
    text = analyzed(built(LOOPS["plain"], tmp_path)).to_json()
    report = json.loads(text)
    assert problems(json.dumps(dict(reversed(report.items()))) + "\n") == ["keys are not sorted"]
    number = str(report["ranks"][0]["summary"]["window_ns"])
    assert "holds NaN" in problems(text.replace(f'"window_ns": {number}', '"window_ns": NaN'))

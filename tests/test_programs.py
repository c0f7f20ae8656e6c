"""Programs as people write them: they train, and what they are held against is computed rightly."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from benchmarks import program_verdicts, programs_page, public_traces
from benchmarks.program_rows import ROWS
from tests.conftest import ROOT

PROGRAMS = ROOT / "workloads" / "programs"
LIBRARIES = {"common", "gpt"}
RANGES = ("record_function", "nvtx", "profiler", "traceprobe")
ROW = {
    "name": "rl",
    "program": "rl",
    "options": "",
    "note": "",
    "ranks": 1,
    "alone": 1,
    "updates": 1,
    "active": 6,
    "clocks_mhz": {},
    "recordings": {},
}


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_programs_mark_nothing(path):
    text = path.read_text(encoding="utf-8")
    assert not [word for word in RANGES if word in text]


def test_every_program_has_a_row_and_every_row_a_program():
    there = {path.stem for path in PROGRAMS.glob("*.py")} - LIBRARIES
    assert {row.program for row in ROWS} == there
    assert len({row.name for row in ROWS}) == len(ROWS) >= 14


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize(
    ("program", "options"),
    [("gan", []), ("rl", ["--no-host"]), ("checkpoint_eval", []), ("offloaded_optimizer", [])],
)
def test_a_program_trains_and_says_how_long_its_steps_take(program, options):
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), "--tiny", "--steps", "6"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=600, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1])["step_ms"] > 0


@pytest.fixture
def trace(tmp_path):
    """Two steps of 10 ms each: kernels that overlap for 4 ms, a copy and a collective."""
    path = tmp_path / "rank0.json.gz"
    events = [
        ("user_annotation", "ProfilerStep#7", 0, 10_000),
        ("user_annotation", "ProfilerStep#8", 10_000, 10_000),
        ("kernel", "gemm", 1_000, 5_000),
        ("kernel", "add", 2_000, 6_000),
        ("kernel", "gemm", 12_000, 3_000),
        ("kernel", "ncclDevKernel_AllReduce", 15_000, 4_000),
        ("gpu_memcpy", "Memcpy HtoD", 19_000, 500),
    ]
    rows = [
        {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur} for cat, name, ts, dur in events
    ]
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": rows}, file)
    return path


def test_computing_is_the_union_of_kernels_but_for_collectives(trace):
    assert program_verdicts.computing_ms(trace, 1) == pytest.approx((7 + 3) / 2)
    assert program_verdicts.computing_ms(trace, 2) == pytest.approx(7 + 3)


def test_a_share_is_what_a_step_gets_shorter_by(trace):
    variants = {"as it is": {"0": 20.0, "1": 20.0}, "communication": {"0": 24.0, "1": 28.0}}
    row = {**ROW, "variants": variants, "ranks": 2, "alone": 2}
    truth = program_verdicts.truth(row, [trace, trace])
    # The slower rank alone takes 28 ms for the work of both: 14 of 20 ms; 5 ms of these compute.
    assert truth["shares"] == pytest.approx({"io": 0, "communication": 0.3, "overhead": 0.45})
    assert truth["bound"] == "overhead"


def test_a_program_that_was_not_timed_has_no_truth(trace):
    assert program_verdicts.truth({**ROW, "variants": {}}, [trace]) is None
    untold = {**ROW, "variants": {"as it is": {"0": None}}}
    assert program_verdicts.truth(untold, [trace]) is None


def verdict(bound):
    shares = {"io": 0.1, "communication": 0.0, "overhead": 0.3, "compute": 0.6, "other": 0.0}
    return {
        "bound": bound,
        "shares": shares,
        "confidence": 0.8,
        "iterations": 6,
        "step_ms": 21.0,
        "marker": "period",
    }


@pytest.mark.parametrize(
    ("bound", "margin", "expected"),
    [("overhead", 0.1, "right"), ("io", 0.1, "wrong"), ("io", 0.02, "near")],
)
def test_misses_are_rows_of_the_page(bound, margin, expected):
    truth = {
        "bound": "overhead",
        "margin": margin,
        "step_ms": 20.0,
        "shares": {"io": 0.0, "communication": 0.0, "overhead": 0.3},
    }
    row = {**ROW, "truth": truth, "verdicts": {"torch": verdict(bound)}}
    assert programs_page.outcome(row, row["verdicts"]["torch"]) == expected
    machine = {"gpus": [], "cpus": 2, "libraries": {"torch": "2"}, "python": "3.12"}
    text = programs_page.page({"machine": machine, "rows": {"rl": row}})
    assert (
        "| `rl` | 1 | torch.profiler | 20.0 / 21.0 | – / – | overhead | 0.0 / 0.0 / 30.0 " in text
    )
    counts = {name: int(name == expected) for name in ("right", "wrong", "near")}
    assert (
        f"{counts['right']} verdicts are right, {counts['wrong']} wrong, {counts['near']}" in text
    )
    assert ("**wrong**" in text) == (expected == "wrong")


def test_the_page_of_the_programs_is_that_of_its_results():
    results = ROOT / "docs" / "validation" / "programs.json"
    page = results.with_suffix(".md").read_text(encoding="utf-8")
    assert page == programs_page.page(json.loads(results.read_text(encoding="utf-8")))


def test_the_page_of_public_traces_is_that_of_its_results():
    text = public_traces.RESULTS.read_text(encoding="utf-8")
    page = public_traces.RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert page == public_traces.page(json.loads(text))


def test_public_traces_are_ten_and_most_answers_are_right():
    results = json.loads(public_traces.RESULTS.read_text(encoding="utf-8"))
    right = [found["answer"] in found["answers"] for found in results]
    assert len(right) >= 10
    assert sum(right) >= 0.9 * len(right)
    assert all(right[i] or (found["confidence"] or 0) <= 0.6 for i, found in enumerate(results))

"""The verdict from a trace is that of the ablation, on runs of known bound; and the page says so.

The runs are real: the CPU subset of the validation matrix, each ablated and recorded in processes
of its own.
"""

from __future__ import annotations

import json
import re
import shutil

import pytest

from benchmarks import matrix, validate, validation_page
from benchmarks.matrix import Case, Control, Row
from tests.conftest import ROOT

CASES = {case.name: case for case in matrix.CPU}
ATTEMPTS = 3
"""Two processes share two cores with everything else: a disturbed measurement is made again."""


def measured(case, folder):
    """Ablation and verdict of one case."""
    todo = validate.jobs([case], bench="--trials 3 --seconds 0.15 --warmup 3")
    assert not validate.run(todo, folder, folder / "work", gpus=0, deadline=1e9)
    found = validate.collect([folder / "work"])[case.name]
    shutil.rmtree(folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu-unet-io", "cpu-wide2"])
@pytest.mark.usefixtures("pytorch")
def test_the_verdict_from_a_trace_is_that_of_the_ablation(name, tmp_path):
    case = CASES[name]
    for attempt in range(ATTEMPTS):
        entry = measured(case, tmp_path / str(attempt))
        oracle, verdict = entry["ablation"]["oracle"], entry["recordings"]["torch"]
        if oracle["bound"] in case.expected and verdict["bound"] in case.expected:
            return
    pytest.fail(f"expected {case.expected}, by ablation {oracle}, from the trace {verdict}")


def entry(full, io, bound, trace_io, trace_bound, margin=0.2, savings=None, samples=4):
    """Results of a case, as `collect` makes them."""
    step = {"median": full, "low": 0.99 * full, "high": 1.01 * full}
    none = {"communication": None, "overhead": None, "compute": {"value": 1 - io}}
    return {
        "arguments": "unet",
        "ranks": 1,
        "environment": {},
        "ablation": {
            "workload": {"samples_per_step": samples},
            "hardware": {"gpus": [], "cpu_count": 2},
            "libraries": {"torch": "2.13.0"},
            "variants": [{"name": "full", "step_ms": step}],
            "oracle": {"bound": bound, "margin": margin, "shares": {"io": {"value": io}, **none}},
        },
        "recordings": {
            "torch": {
                "bound": trace_bound,
                "confidence": 0.9,
                "shares": {"io": trace_io, "communication": 0.0, "overhead": 0.0},
                "savings": savings or {},
                "unprofiled_step_ms": full,
            }
        },
    }


def test_a_wrong_verdict_is_a_miss_unless_the_ablation_itself_is_near_its_threshold():
    results = {
        "right": entry(100, 0.5, "io", 0.48, "io"),
        "wrong": entry(100, 0.5, "io", 0.1, "compute"),
        "near": entry(100, 0.21, "io", 0.1, "compute", margin=0.01),
    }
    found = validation_page.agreement(results, results)
    assert found == (1, 2, ["wrong (torch)"])


def test_errors_are_in_points_of_the_step_and_unknown_shares_have_none():
    results = {"a": entry(100, 0.5, "io", 0.48, "io")}
    errors = validation_page.share_errors(results, results)
    assert errors["io"] == [pytest.approx(-2)]
    assert errors["communication"] == errors["overhead"] == []


@pytest.mark.parametrize(("allowed", "exceeded"), [(61, []), (57, ["torch"])])
def test_a_saving_beyond_its_interval_is_told(allowed, exceeded):
    slow = entry(100, 0.6, "io", 0.6, "io", savings={"data-wait": allowed})
    results = {"slow": slow, "fast": entry(80, 0.0, "compute", 0.0, "compute", samples=8)}
    rows = [Row("slow", "", (Control("fast", "twice the batch", ("data-wait",)),))]
    (change,) = validation_page.savings(results, rows)
    # 100 ms against 80 ms for twice the samples
    assert (change["measured"], change["exceeded"]) == (pytest.approx(60), exceeded)
    assert (change["low"], change["high"]) == (pytest.approx(58.6), pytest.approx(61.4))


def test_rows_and_controls_are_cases():
    for cases, rows in ((matrix.GPU, matrix.GPU_ROWS), (matrix.CPU, matrix.CPU_ROWS)):
        names = [case.name for case in cases]
        assert len(names) == len(set(names))
        used = {name for row in rows for name in (row.case, *(c.case for c in row.controls))}
        assert used <= set(names)


def test_levers_are_findings_that_exist():
    documented = set(
        re.findall(r"^## ([a-z0-9-]+)$", (ROOT / "docs/findings.md").read_text(), re.M)
    )
    rows = (*matrix.GPU_ROWS, *matrix.CPU_ROWS)
    levers = {lever for row in rows for control in row.controls for lever in control.lever}
    assert levers <= documented


def test_a_case_is_run_by_traceprobe_with_its_ranks(tmp_path):
    case = Case("a", "unet --workers 1", ("io",), ranks=2)
    found = [job.command(tmp_path)[2:] for job in validate.jobs([case])]
    assert [line[1:2] for line in found] == [["bench"], ["profile"], ["profile"]]
    for line in found:
        assert line[line.index("--nproc-per-node") + 1] == "2"
        assert line[-3:] == ["unet", "--workers", "1"]


def test_the_page_is_what_the_results_make():
    results = json.loads((ROOT / "docs/validation/results.json").read_text())
    page = validation_page.page(results, matrix.GPU_ROWS)
    assert (ROOT / "docs/validation/README.md").read_text() == page


def test_the_published_results_keep_what_the_page_claims():
    """95 % of the clear verdicts, shares within 5 points, savings beyond a bound are explained."""
    results = json.loads((ROOT / "docs/validation/results.json").read_text())
    done = validation_page.judged(results)
    right, compared, _ = validation_page.agreement(results, done)
    assert right >= 0.95 * compared
    for errors in validation_page.share_errors(results, done).values():
        assert sum(map(abs, errors)) / len(errors) <= 5
    changes = list(validation_page.savings(results, matrix.GPU_ROWS))
    assert {c["case"] for c in changes if c["exceeded"]} == set(matrix.MORE_SAVED)
    assert len(changes) >= 26
    rows = [row.case for row in matrix.GPU_ROWS if row.case in done]
    assert len(rows) >= 16
    assert {results[name]["ranks"] for name in rows} == {1, 2, 4}

"""Pages of what was measured on hardware: they show their results, and these are within bounds."""

from __future__ import annotations

import json

import pytest

from benchmarks import hardware, whatif
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "validation"


def recorded(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "page"), [("hardware", hardware.page), ("whatif", whatif.page)])
def test_the_page_is_that_of_its_results(name, page):
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(recorded(name))


@pytest.mark.parametrize("case", hardware.CASES)
def test_mfu_is_that_of_a_calculation_by_hand(case):
    found = recorded("hardware")["mfu"][case]
    assert found["flops"] == found["flops_by_hand"] == hardware.operations(case)
    peak = hardware.PEAKS[case.split("-")[1]]
    by_hand = found["flops_by_hand"] / (found["loop_ms"] * peak * 1e9)
    assert abs(found["mfu"] - by_hand) < 0.02


def test_measured_peaks_are_those_of_plain_loops():
    for found in recorded("hardware")["peaks"].values():
        assert found["measured"] == pytest.approx(found["direct"], rel=0.1)


@pytest.mark.parametrize("run", hardware.MEMORY)
def test_memory_is_predicted(run):
    results = recorded("hardware")
    errors = hardware.gap(results["memory"][run], results["context_bytes"])
    assert max(map(abs, errors)) < 0.1
    predicted, measured = (
        results["memory"][run][side]["parts"] for side in ("predicted", "measured")
    )
    for part, size in measured.items():
        assert predicted[part] == pytest.approx(size, rel=0.1, abs=2 << 20)


@pytest.mark.parametrize("kind", ["ablation", "change"])
def test_most_predictions_are_near(kind):
    rows = [row for row in recorded("whatif") if row["kind"] == kind]
    near = [row for row in rows if abs(whatif.error(row)) <= whatif.NEAR]
    assert len(rows) >= 40
    assert len(near) >= 0.8 * len(rows)


def test_every_miss_of_a_prediction_is_explained_or_named():
    rows = [row for row in recorded("whatif") if row["kind"] != "buckets"]
    missed = {(r["case"], r["control"]) for r in rows if abs(whatif.error(r)) > whatif.NEAR}
    assert missed <= set(whatif.WHY)

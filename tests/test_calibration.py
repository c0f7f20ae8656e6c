"""The table of stated confidence against right verdicts counts what it says."""

from __future__ import annotations

import json

import pytest

from benchmarks import calibration
from benchmarks.calibration import Row
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.conftest import ROOT

MS = 1_000_000
PAGE = ROOT / "docs" / "validation" / "calibration.md"


def row(bound, confidence, *accepted, group=calibration.CURATED):
    return Row(f"{bound} {confidence}", group, bound, confidence, accepted or ("io",))


@pytest.mark.parametrize(
    ("bound", "accepted", "outcome"),
    [
        ("io", ("io",), "right"),
        ("io", ("overhead", "io"), "right"),
        ("compute", ("io",), "wrong"),
        ("inconclusive", ("io",), "abstained"),
        ("inconclusive", ("inconclusive",), "abstained"),
        ("refused", ("inconclusive",), "abstained"),
    ],
)
def test_a_verdict_is_right_or_wrong_and_none_is_neither(bound, accepted, outcome):
    assert row(bound, 0.5, *accepted).outcome == outcome


def test_a_confidence_counts_in_one_bin_and_certainty_in_the_last():
    rows = [row("io", c) for c in (0.0, 0.299, 0.3, 0.5, 0.79, 0.8, 1.0)]
    rows += [row("compute", 0.95), row("inconclusive", 0.0, "inconclusive")]
    text = calibration.page(rows)
    cells = [line.split(" | ")[1:] for line in text.splitlines() if line.startswith("| 0")]
    assert cells[:4] == [
        ["2", "2", "0", "100 |"],
        ["1", "1", "0", "100 |"],
        ["2", "2", "0", "100 |"],
        ["3", "2", "1", "67 |"],
    ]
    assert "1 of 9 abstained; for 1 of them that is right" in text
    assert "- compute 0.95: compute at 0.95, right is io" in text


def test_labels_of_a_manifest_are_bounds_that_are_right():
    accepted = calibration._accepted
    assert accepted({"bound": "io", "truth": None}) == ("io",)
    assert accepted({"bound": None, "truth": {"bounds": ["io", "mixed"]}}) == ("io", "mixed")
    assert "io" not in accepted({"bound": None, "truth": {"never": ["io"]}})
    assert accepted({"bound": None}) == ()


def test_a_corpus_is_analysed_and_read_back(tmp_path):
    (tmp_path / "wild").mkdir()
    loop = Loop(steps=10, forward_ns=4 * MS, data_wait_ns=6 * MS, wait="loader")
    kineto.write(loop.scenario(), tmp_path / "starved.json")
    (tmp_path / "wild" / "broken.json").write_text("[]")
    labels = [
        {"file": "starved.json", "bound": "io", "format": "kineto"},
        {"file": "wild/broken.json", "bound": None, "truth": {"bounds": ["inconclusive"]}},
        {"file": "nobody-knows.json", "bound": None},
    ]
    (tmp_path / "manifest.json").write_text(json.dumps(labels))
    rows = list(calibration.corpus_rows(tmp_path))
    assert [(r.name, r.bound, r.outcome) for r in rows] == [
        ("starved.json", "io", "right"),
        ("broken.json", "refused", "abstained"),
    ]
    assert rows[0].confidence > 0.7
    calibration.write(rows, tmp_path / "calibration.json")
    assert calibration.read(tmp_path / "calibration.json") == rows
    assert (tmp_path / "calibration.md").read_text() == calibration.page(rows)


def test_no_random_loop_is_judged_wrongly_with_confidence(tmp_path):
    rows = list(calibration.loop_rows(24, tmp_path))
    assert [r for r in rows if r.outcome == "wrong" and r.confidence > 0.3] == []
    whole = [r for r in rows if r.name.endswith("everything")]
    assert sum(r.outcome == "right" for r in whole) >= 0.8 * len(whole) > 3
    assert not list(tmp_path.iterdir())


def test_runs_near_the_threshold_of_their_ablation_are_left_out():
    verdict = {"bound": "io", "confidence": 0.9}
    far, near = ({"oracle": {"bound": "io", "margin": margin}} for margin in (0.03, 0.02))
    results = {
        "b": {"ablation": far, "recordings": {"torch": verdict, "nsys": verdict}},
        "a": {"ablation": near, "recordings": {"torch": verdict}},
        "c": {"ablation": None, "recordings": {"torch": verdict}},
    }
    rows = list(calibration.matrix_rows(results))
    assert [(r.name, r.outcome) for r in rows] == [("b (nsys)", "right"), ("b (torch)", "right")]


def test_the_page_of_the_calibration_is_up_to_date():
    rows = calibration.read(PAGE.with_suffix(".json"))
    assert PAGE.read_text(encoding="utf-8") == calibration.page(rows)

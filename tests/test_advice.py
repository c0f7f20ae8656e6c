"""The page of measured advice: its rules exist, its numbers are those of its results."""

from __future__ import annotations

import json

import pytest

from benchmarks import advice
from benchmarks.advice_page import measured, page
from tests.conftest import ROOT
from traceprobe.findings import RULES

RESULTS = json.loads((ROOT / "docs/validation/advice.json").read_text(encoding="utf-8"))
ENOUGH = 10


def run(step_ms, saving_ms=None, status="pass", samples=4, uncertain_ms=None):
    """A recorded run with one finding."""
    return {
        "step_ms": step_ms,
        "samples_per_step": samples,
        "uncertain_ms": uncertain_ms,
        "findings": {"rule": {"status": status, "saving_ms": saving_ms}},
    }


def row(before, after):
    pair = advice.Pair("rule", "slow", "fast", "a change")
    (found,) = measured({"slow": before, "fast": after}, [pair])
    return found


def test_every_pair_is_of_a_rule_and_of_runs_that_exist():
    assert {pair.rule for pair in advice.PAIRS} <= set(RULES)
    assert {name for p in advice.PAIRS for name in (p.before, p.after)} <= set(advice.cases())


def test_the_page_is_that_of_its_results():
    shown = (ROOT / "docs/validation/advice.md").read_text(encoding="utf-8")
    assert shown == page(RESULTS, advice.PAIRS, advice.WORKERS)


def test_ten_rules_were_right_on_hardware():
    right = {
        found["pair"].rule
        for found in measured(RESULTS, advice.PAIRS)
        if found["good"] and found["verdict"] in ("yes", "yes, but for noise")
    }
    assert len(right) >= ENOUGH


def test_a_change_is_measured_at_the_same_number_of_samples():
    found = row(run(100.0, 70.0, "warn"), run(80.0, samples=8))
    assert (found["saved"], found["verdict"], found["good"]) == (60.0, "yes", True)


@pytest.mark.parametrize(
    ("allowed", "uncertain", "verdict"),
    [
        (60.0, None, "yes"),
        (59.0, None, "**no**"),
        (59.0, 1.0, "yes, but for noise"),
        (57.0, 1.0, "**no**"),
        (None, 1.0, "no bound"),
    ],
)
def test_more_than_the_bound_is_said(allowed, uncertain, verdict):
    before = run(100.0, allowed, "warn", uncertain_ms=uncertain)
    found = row(before, run(40.0, uncertain_ms=uncertain))
    assert found["verdict"] == verdict


@pytest.mark.parametrize(
    ("was", "now", "good"),
    [
        ("fail", "pass", True),
        ("warn", "not-applicable", True),
        ("warn", "warn", False),
        ("pass", "pass", False),
    ],
)
def test_a_rule_has_to_fire_before_and_not_after(was, now, good):
    assert row(run(2.0, 1.0, was), run(1.0, None, now))["good"] is good


def test_what_was_not_recorded_is_named():
    assert "`gpt2-math`" in page({}, [advice.PAIRS[0]], []).split("## Not run")[1]

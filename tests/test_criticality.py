"""Slopes of step time over delay, on numbers whose answer is known, and what they say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.causal_records import (
    DEVICE_BOUND,
    HOST_BOUND,
    LOADER_BOUND,
    make_causal,
    make_region,
)
from tests.report_factory import make_report
from traceprobe.records.causal import Slope
from traceprobe.records.critical_path import CriticalPath, Edges, PathPart
from traceprobe.verdict import criticality, second_opinion

DELAYS = np.array([[0.0, 0.0, 1.0, 2.0]] * 5)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_steps_on_a_line_have_its_slope_whatever_the_level_of_their_round(value):
    drift = np.array([[10.0], [11.0], [15.0], [9.0], [30.0]])
    found = criticality.slope(DELAYS, drift + value * DELAYS)
    assert (found.value, found.low, found.high) == pytest.approx((value, value, value), abs=1e-6)


def test_the_interval_holds_the_slope_as_often_as_it_says():
    source = np.random.default_rng(7)
    draws = [
        criticality.slope(DELAYS, 10 + 0.7 * DELAYS + source.normal(0, 0.3, DELAYS.shape))
        for _ in range(400)
    ]
    assert np.mean([s.low <= 0.7 <= s.high for s in draws]) == pytest.approx(0.95, abs=0.035)
    assert np.mean([s.value for s in draws]) == pytest.approx(0.7, abs=0.02)


def test_what_a_round_has_more_of_in_one_condition_is_a_difference():
    before = np.array([1.0, 2.0, 3.0])
    assert criticality.difference(before, before + 0.5).value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.9, 1.1, "critical"),
        (0.55, 1.4, "critical"),
        (-0.1, 0.1, "hidden"),
        (0.1, 0.45, "hidden"),
        (0.3, 0.6, "partly"),
        (0.1, 0.9, "unclear"),
        (-2.0, 3.0, "unclear"),
    ],
)
def test_a_slope_says_what_its_interval_allows(low, high, word):
    assert criticality.judge(Slope(value=(low + high) / 2, low=low, high=high)) == word


def test_slopes_that_no_schedule_has_are_told():
    slopes = [
        ("a", Slope(value=1.5, low=1.2, high=1.8)),
        ("b", Slope(value=-0.5, low=-0.8, high=-0.2)),
        ("c", Slope(value=1.1, low=0.9, high=1.3)),
    ]
    assert [text[0] for text in criticality.surprises(slopes)] == ["b", "a"]


@pytest.mark.parametrize(
    ("bound", "slopes", "state"),
    [
        ("compute", DEVICE_BOUND, "agree"),
        ("overhead", HOST_BOUND, "agree"),
        ("io", LOADER_BOUND, "agree"),
        ("compute", HOST_BOUND, "disagree"),
        ("overhead", LOADER_BOUND, "disagree"),
        ("io", DEVICE_BOUND, "unknown"),  # copies are I/O, and were not probed
        ("communication", DEVICE_BOUND, "unknown"),
    ],
)
def test_the_verdict_of_a_trace_against_probes(bound, slopes, state):
    found = second_opinion.compare(make_report(bound).verdict, make_causal(slopes))
    assert found.state == state


def test_collectives_that_are_hidden_contradict_communication():
    hidden = make_causal({("collectives", "network"): 0.0, ("forward", "device"): 1.0})
    verdict = make_report("communication").verdict
    assert second_opinion.compare(verdict, hidden).state == "disagree"


def test_a_critical_path_that_runs_where_delays_are_hidden_is_contradicted():
    path = make_path(forward=60.0, host=40.0)
    (one, two) = second_opinion.contradictions(path, make_causal({
        ("forward", "device"): 0.0,
        ("backward", "device"): 1.0,
    }))  # fmt: skip
    assert "forward is 60.0 % of the critical path" in one
    assert "the critical path has no backward" in two
    agreeing = make_causal({("forward", "device"): 1.0, ("backward", "device"): 0.0})
    assert not [*second_opinion.contradictions(path, agreeing)]


def make_path(**parts):
    return CriticalPath(
        step_ms=sum(parts.values()),
        parts=[PathPart(part=part, rank=0, ms=ms) for part, ms in parts.items()],
        operators=[],
        slack=[],
        stretches=[],
        blocking=[],
        blocking_ms=None,
        edges=Edges(recorded=0, inferred=0, unresolved=0),
        host_factor=1.0,
    )


def test_every_region_that_is_probed_has_a_name():
    for region, resource in {**DEVICE_BOUND, ("collectives", "network"): 1.0}:
        assert second_opinion.label(make_region(region, resource, 1.0)) != region or (
            region == "collectives"
        )

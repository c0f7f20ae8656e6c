"""The verdict of an ablation, on step times whose shares are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from traceprobe.verdict import ablation
from traceprobe.verdict.thresholds import Thresholds

THRESHOLDS = Thresholds()
PUBLISHED = [
    ((84.468, 481.618, 83.212), 0.90),
    ((234.450, 415.428, 166.868), 0.20),
    ((943.632, 592.984, 578.118), 0.94),
    ((929.612, 820.332, 665.790), 0.60),
    ((936.818, 893.160, 683.573), 0.52),
]
"""Throughput of loader, training and both (SC22), and the overlap that was published."""
SHARES = ("io", "communication", "overhead", "compute")


def trials(**step_ms):
    """Three equal trials of every variant, whose names are written with underscores."""
    return {name.replace("_", "-"): np.full(3, float(ms)) for name, ms in step_ms.items()}


def judged(busy=None, **step_ms):
    return ablation.judge_ablation(trials(**step_ms), busy, THRESHOLDS)


def values(found):
    return tuple(None if found.shares[n] is None else found.shares[n].value for n in SHARES)


@pytest.mark.parametrize(("rates", "expected"), PUBLISHED)
def test_overlap_of_published_measurements(rates, expected):
    assert ablation.position(*rates).position == pytest.approx(expected, abs=0.005)


def test_overlap_by_hand():
    found = ablation.position(io=100.0, synthetic=300.0, full=90.0)
    assert (found.serial, found.parallel, found.full) == (75.0, 100.0, 90.0)
    assert found.position == 0.6
    assert ablation.position(100.0, 300.0, 75.0).position == 0.0
    assert ablation.position(100.0, 300.0, 100.0).position == 1.0
    assert ablation.position(100.0, 300.0, 70.0).position < 0


@pytest.mark.parametrize("rates", [(1e6, 100.0, 99.0), (100.0, 1e6, 99.0)])
def test_overlap_cannot_show_where_one_part_takes_no_time(rates):
    assert ablation.position(*rates).position is None


def test_overlap_takes_the_copy_for_a_part_of_training():
    found = ablation.overlap(trials(io=10, synthetic_host=5, synthetic_device=2, full=12))
    assert found.serial == pytest.approx(1000 / 15, abs=1e-5)
    assert found.parallel == 100.0
    alone = ablation.overlap(trials(io=10, synthetic_device=2, full=12))
    assert alone.serial == pytest.approx(1000 / 12, abs=1e-5)
    assert ablation.overlap(trials(synthetic_host=5, full=12)) is None


def test_shares_by_hand():
    found = judged(
        busy=40.0,
        io=20,
        synthetic_host=85,
        synthetic_device=80,
        full=100,
        full_no_comm=70,
        synthetic_no_comm=50,
    )
    assert values(found) == (0.2, 0.3, 0.1, 0.4)
    assert (found.bound, found.secondary) == ("communication", "io")
    assert all(s.low == s.value == s.high for s in found.shares.values())


def test_without_a_gpu_overhead_is_unknown_and_counts_as_compute():
    found = judged(io=5, synthetic_host=70, full=100)
    assert values(found) == (0.3, None, None, 0.7)
    found = judged(io=5, synthetic_host=90, full=100, full_no_comm=60, synthetic_no_comm=55)
    assert values(found) == (0.1, 0.35, None, 0.55)


def test_what_comes_out_faster_with_more_in_it_counts_as_equal():
    found = judged(busy=200.0, io=5, synthetic_device=120, synthetic_no_comm=130, full=100)
    assert values(found) == (0.0, 0.0, 0.0, 1.0)
    assert found.bound == "compute"


@pytest.mark.parametrize(
    ("bound", "secondary", "busy", "steps"),
    [
        ("io", None, 48.0, {"synthetic_device": 50, "full": 100}),
        ("io", "overhead", 40.0, {"synthetic_device": 50, "full": 100}),
        ("overhead", None, 60.0, {"synthetic_device": 98, "full": 100}),
        ("communication", None, 68.0, {"synthetic_device": 98, "synthetic_no_comm": 70}),
        ("compute", None, 97.0, {"synthetic_device": 99, "full": 100}),
        ("compute", "io", 85.0, {"synthetic_device": 86, "full": 100}),
        ("compute", "overhead", 80.5, {"synthetic_device": 100, "full": 100}),
        ("mixed", "io+overhead", 60.0, {"synthetic_device": 79, "full": 100}),
        ("mixed", "communication+io", 62.0, {"synthetic_device": 82, "synthetic_no_comm": 62}),
        ("io", "overhead", 59.0, {"synthetic_device": 74, "full": 100}),
    ],
)
def test_decisions(bound, secondary, busy, steps):
    found = judged(busy=busy, io=30, **{"full": 100, **steps})
    assert (found.bound, found.secondary) == (bound, secondary)
    assert found.margin >= 0
    assert found.thresholds == THRESHOLDS.as_dict()


def test_a_share_that_may_be_nothing_bounds_nothing():
    """Of seven trials three were slower with the loader: by chance, as far as anybody can tell."""
    slower = np.array([30.0, 30.0, 45.0, 30.0, 46.0, 44.0, 47.0])
    steps = {"synthetic-device": np.full(7, 30.0), "io": np.full(7, 1.0), "full": slower}
    found = ablation.judge_ablation(steps, None, THRESHOLDS)
    assert found.shares["io"].value > THRESHOLDS.bound
    assert found.shares["io"].low == 0
    assert (found.bound, found.secondary) == ("inconclusive", None)
    assert "more trials" in found.reasons[-1]


def test_thresholds_are_those_of_the_verdict_from_a_trace():
    steps = trials(io=30, synthetic_device=75, full=100)
    assert ablation.judge_ablation(steps, 75.0, THRESHOLDS).bound == "io"
    assert ablation.judge_ablation(steps, 75.0, Thresholds(bound=0.26)).bound == "compute"


def test_the_margin_is_the_distance_to_another_answer():
    assert judged(busy=70.0, io=30, synthetic_device=73, full=100).margin == pytest.approx(0.07)
    assert judged(busy=87.0, io=30, synthetic_device=88, full=100).margin == pytest.approx(0.08)


@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_an_interval_covers_the_median_and_lies_within_the_trials(spread):
    values = np.random.default_rng(3).lognormal(0, spread, 15)
    found = ablation.interval(values)
    assert values.min() <= found.low <= found.median <= found.high <= values.max() + 1e-6
    assert found.p10 < found.median < found.p90
    assert found.median == pytest.approx(np.median(values), abs=1e-6)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    draws = np.random.default_rng(4).normal(50.0, 5.0, (150, 15))
    found = [ablation.interval(row) for row in draws]
    covered = np.mean([i.low <= 50.0 <= i.high for i in found])
    assert 0.88 <= covered <= 1.0


def test_equal_trials_give_an_interval_without_width():
    found = ablation.interval(np.full(5, 7.0))
    assert (found.low, found.median, found.high) == (7.0, 7.0, 7.0)


def test_the_same_trials_give_the_same_answer():
    noise = np.random.default_rng(5).normal(1, 0.05, (4, 7))
    names = ("io", "synthetic-host", "synthetic-device", "full")
    steps = {n: ms * row for n, ms, row in zip(names, (30, 70, 65, 100), noise, strict=True)}
    assert ablation.judge_ablation(steps, 50.0, THRESHOLDS) == ablation.judge_ablation(
        steps, 50.0, THRESHOLDS
    )
    share = ablation.judge_ablation(steps, 50.0, THRESHOLDS).shares["io"]
    assert share.low < share.value < share.high


def test_what_disturbs_a_whole_round_does_not_widen_the_shares():
    rounds = np.array([1.0, 1.4, 0.8, 2.0, 1.1])
    steps = {"synthetic-device": 70.0 * rounds, "full": 100.0 * rounds}
    found = ablation.judge_ablation(steps, None, THRESHOLDS)
    assert found.shares["io"].low == found.shares["io"].high == pytest.approx(0.3)


def test_reasons_name_what_was_measured():
    found = judged(
        busy=40.0, io=0.0004, synthetic_host=85, synthetic_device=80, synthetic_no_comm=50, full=100
    )
    text = "\n".join(found.reasons)
    for words in (
        "100 ms a step with everything, 80.0 ms without loading and copying",
        "the copy to the device costs 5.00 ms",
        "the loader alone needs less than 0.01 ms a step, less than training does",
        "50.0 ms without communication",
        "the GPU is busy for 40.0 ms",
    ):
        assert words in text

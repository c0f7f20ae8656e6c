"""The bound and how sure it is, from shares of steps of 1000 ms: a ms is a tenth of a percent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import memory
from tests.builders.loop import Loop
from tests.records import step
from traceprobe.records.rank import StepMarker
from traceprobe.records.report import ObserverEffect, Term
from traceprobe.replay.predict import now_ms
from traceprobe.verdict import Thresholds, confidence
from traceprobe.verdict.bounds import agrees
from traceprobe.verdict.judge import judge
from traceprobe.verdict.wording import bound_label, how_sure, runner_up

NAMES = ("io", "communication", "overhead")
VERDICT = judge(
    [records.rank({"idle_host": 600, "forward": 400})],
    None,
    records.quality(),
    frozenset(),
    None,
    Thresholds(),
)


def decide(*ranks, **options):
    return records.judge_parts(ranks, **options)[0]


def bound(*shares, **options):
    decision = decide(records.rank(step(*shares)), **options)
    return decision.bound, decision.secondary


@pytest.mark.parametrize("number", range(3), ids=NAMES)
@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, ("compute", None)),
        (49, ("compute", None)),
        (50, ("compute", "it")),
        (199, ("compute", "it")),
        (200, ("it", None)),
        (900, ("it", None)),
    ],
)
def test_a_candidate_is_notable_from_5_percent_and_the_bound_from_20(number, share, expected):
    shares = [share if i == number else 0 for i in range(3)]
    name = NAMES[number]
    assert bound(*shares) == tuple(name if e == "it" else e for e in expected)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((300, 60, 0), ("io", "communication")),
        ((300, 49, 0), ("io", None)),
        ((0, 260, 200), ("communication", "overhead")),
        ((210, 0, 250), ("mixed", "overhead+io")),
        ((250, 200, 0), ("mixed", "io+communication")),
        ((200, 150, 0), ("mixed", "io+communication")),
        ((160, 150, 0), ("mixed", "io+communication")),
        ((160, 149, 0), ("compute", "io")),
        ((170, 180, 160), ("mixed", "communication+io")),
        ((333, 333, 333), ("mixed", "communication+io")),
    ],
)
def test_two_candidates_from_15_percent_on_within_5_points_are_mixed(shares, expected):
    assert bound(*shares) == expected


@pytest.mark.parametrize(
    ("parts", "largest"),
    [
        ({"forward": 300, "idle_host": 190, "communication": 110, "d2h": 400}, "other"),
        ({"forward": 180, "idle_data_wait": 190, "communication": 130, "d2h": 500}, "other"),
    ],
)
def test_compute_that_is_not_the_largest_share_is_no_verdict(parts, largest):
    decision = decide(records.rank(parts))
    assert decision.bound == "inconclusive"
    assert decision.missing[0].startswith(f"{largest} takes {parts['d2h'] / 10:.0f} %")


@given(
    st.lists(st.integers(0, 1_000), min_size=6, max_size=6).filter(any),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 8_000)),
    st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
)
@settings(max_examples=300, deadline=None)
def test_a_bound_agrees_with_the_shares_that_are_printed(times, marked, unprofiled_ms, levels):
    names = ("forward", "idle_data_wait", "communication", "idle_host", "d2h", "idle_profiler")
    ranks = [records.rank(dict(zip(names, times, strict=True)), marked=marked)]
    thresholds = Thresholds(notable=levels[0] / 100, bound=levels[1] / 100)
    decision, corrected, _ = records.judge_parts(
        ranks, None, HEAVY, unprofiled_ms, thresholds=thresholds
    )
    shares = corrected.shares
    largest = max(shares[name] for name in NAMES)
    if decision.bound == "compute":
        assert shares["compute"] == pytest.approx(max(shares.values()), abs=1e-5)
    elif decision.bound in NAMES:
        assert shares[decision.bound] == pytest.approx(largest, abs=1e-5)
    elif decision.bound == "mixed":
        top = sorted((shares[name] for name in NAMES), reverse=True)[:2]
        assert sorted((shares[n] for n in decision.deciding), reverse=True) == pytest.approx(
            top, abs=1e-5
        )
    assert bool(decision.missing) == (decision.bound == "inconclusive")
    assert agrees(decision.deciding, shares)


@pytest.mark.parametrize(
    ("part", "group"),
    [
        ("idle_data_wait", "io"),
        ("h2d", "io"),
        ("communication", "communication"),
        ("idle_host", "overhead"),
        ("idle_sync", "overhead"),
        ("idle_latency", "overhead"),
        ("memory", "compute"),
        ("graph", "compute"),
        ("input", "compute"),
        ("unattributed", "compute"),
        ("recompute", "compute"),
        ("d2h", "other"),
        ("idle_profiler", "other"),
        ("idle_unexplained", "other"),
    ],
)
def test_each_part_of_a_step_counts_in_one_share(part, group):
    _, corrected, _ = records.judge_parts([records.rank(step(**{part: 250}))])
    expected = dict.fromkeys(corrected.shares, 0) | {"compute": 0.75}
    expected[group] += 0.25
    assert corrected.shares == pytest.approx(expected)


def test_thresholds_are_options_and_printed():
    thresholds = Thresholds(bound=0.4, notable=0.35, mixed=0.38)
    assert bound(390, thresholds=thresholds) == ("compute", "io")
    assert bound(340, thresholds=thresholds) == ("compute", None)
    assert bound(400, thresholds=thresholds) == ("io", None)
    verdict = judge([records.rank(step())], None, records.quality(), frozenset(), None, thresholds)
    assert verdict.thresholds["bound"] == 0.4


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"idle_data_wait": 300, "h2d": 200, "forward": 500}, "io"),
        ({"idle_data_wait": 501, "forward": 499}, "io"),
        ({"communication": 500, "forward": 400, "idle_host": 100}, "communication"),
        ({"idle_host": 500, "forward": 400, "idle_sync": 100}, "overhead"),
        ({"unattributed": 620, "idle_host": 199, "h2d": 181}, "compute"),
        ({"unattributed": 600, "idle_host": 200, "h2d": 200}, "inconclusive"),
        ({"forward": 660, "idle_host": 340}, "inconclusive"),
        ({"forward": 499, "h2d": 250, "idle_host": 251}, "inconclusive"),
        ({"d2h": 600, "forward": 400}, "inconclusive"),
    ],
)
def test_without_a_step_marker_only_half_of_the_capture_decides(parts, expected):
    decision = decide(records.rank(parts, marked=False))
    assert decision.bound == expected
    assert decision.secondary is None
    if expected == "inconclusive":
        assert "no step marker" in decision.missing[0]
        assert "--step" in decision.missing[0]


def test_one_rank_with_a_step_marker_is_enough():
    ranks = records.rank(step(300)), records.rank(step(300), 1, marked=False)
    assert decide(*ranks).bound == "io"


@pytest.mark.parametrize(("ops", "expected"), [(99, "inconclusive"), (100, "compute")])
def test_without_a_step_marker_a_hundred_gpu_ops_are_needed(ops, expected):
    whole = records.rank(step(), marked=False)
    assert decide(whole, gpu_ops=ops).bound == expected
    assert decide(records.rank(step()), gpu_ops=ops).bound == "compute"


@pytest.mark.parametrize(
    ("rank", "reason"),
    [
        (records.rank(step(400, 300), steps=2), "there are only 2 usable iterations"),
        (records.rank(step(), coverage=0.899), "only 90 % of the launches have a GPU row"),
        (records.rank(step(idle_unexplained=301)), "30 % of the time the GPU idles while the"),
    ],
)
def test_what_is_missing_makes_it_inconclusive_and_is_said(rank, reason):
    decision = decide(rank)
    assert (decision.bound, decision.secondary) == ("inconclusive", None)
    assert decision.missing[0].startswith(reason)
    assert re.search("[;:] ", decision.missing[0])  # and what to do about it


@pytest.mark.parametrize(
    ("held", "said"),
    [(151, "its work was launched in time"), (150, "while the host makes no call")],
)
def test_what_is_held_up_in_the_device_is_no_silence_of_the_host(held, said):
    facts = records.host(held_idle_ns=held * records.STEPS * records.MS)
    silent = 301 - held
    for more in ({}, {"io": 100}):
        parts = step(idle_latency=held, idle_unexplained=silent, **more)
        missing = decide(records.rank(parts, host=facts)).missing[0]
        assert said in missing
        assert ("another process on the GPU" in missing) == (held > 150)


def test_what_is_held_up_is_no_overhead():
    facts = records.host(held_idle_ns=150 * records.STEPS * records.MS)
    _, corrected, _ = records.judge_parts([records.rank(step(idle_latency=200), host=facts)])
    shares = corrected.shares
    assert shares["overhead"] == pytest.approx(0.05)
    assert shares["other"] == pytest.approx(0.15)


@pytest.mark.parametrize(
    "rank",
    [
        records.rank(step(), steps=3),
        records.rank(step(), coverage=0.9),
        records.rank(step(), coverage=None),
        records.rank(step(idle_unexplained=199)),
        records.rank(step(100, idle_unexplained=99)),
    ],
)
def test_what_just_suffices_is_judged(rank):
    assert decide(rank).bound == "compute"


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("parts", [{"idle_unexplained": 200}, {"io": 100, "idle_unexplained": 100}])
def test_unexplained_time_that_would_make_a_bound_leaves_compute_open(parts, marked):
    decision = decide(records.rank(step(**parts), marked=marked))
    assert decision.bound == "inconclusive"
    said = "belongs to I/O (10.0 %) too" if "io" in parts else "nothing tells what the program does"
    assert said in decision.missing[0]


def test_unexplained_time_is_told_beside_what_it_would_make_a_bound_of():
    (missing,) = decide(records.rank(step(overhead=95, idle_unexplained=110))).missing
    assert missing.startswith(
        "compute-bound (79.5 %), unless the 11.0 % in which the GPU idles while the host makes no "
        "call belongs to overhead (9.5 %) too, which from 20 % on would be the bound; annotate what"
    )


def test_little_unexplained_time_beside_a_known_candidate_only_makes_the_answer_less_sure():
    rank = records.rank(step(overhead=175, idle_unexplained=30), attributed_share=None)
    assert decide(rank).bound == "compute"
    assert terms(rank)["margin"] == 0.0


@pytest.mark.parametrize(
    ("wait", "inferred", "asked"), [(0, 0, True), (50, 50, True), (50, 0, False)]
)
def test_nobody_is_asked_to_annotate_a_loader_that_was_recognised(wait, inferred, asked):
    loading = replace(records.HOST, data_wait_inferred_ns=inferred * records.MS * records.STEPS)
    rank = records.rank(step(io=wait, idle_unexplained=301), host=loading)
    (missing,) = decide(rank).missing
    assert ("data_load" in missing) is asked
    assert "annotate it" in missing


@pytest.mark.parametrize(
    ("parts", "margin"),
    [
        ({"io": 400}, 0.45),
        ({"io": 400, "idle_unexplained": 280}, 0.36),  # 12 points from as much of another cause
        ({"io": 400, "overhead": 100, "idle_unexplained": 280}, 0.06),
        ({"io": 300, "overhead": 100, "idle_unexplained": 280}, 0.0),
        ({"idle_unexplained": 100}, 0.3),
    ],
)
def test_unexplained_time_may_be_any_cause(parts, margin):
    found = terms(records.rank(step(**parts), attributed_share=None))
    assert found["margin"] == pytest.approx(margin)


@pytest.mark.parametrize(
    ("steps", "said"), [(1, "is only 1 usable iteration,"), (2, "are only 2 usable iterations,")]
)
def test_one_or_two_iterations_are_judged_as_a_whole_capture_is(steps, said):
    assert decide(records.rank(step(501), steps=steps)).bound == "io"
    assert decide(records.rank(step(), steps=steps)).bound == "compute"
    missing = decide(records.rank(step(499, 251), steps=steps)).missing
    assert f"there {said}" in missing[0]


TIMED = ObserverEffect(profiled_step_ms=1_000.0, unprofiled_step_ms=900.0, ratio=1.1111)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"overhead": 400}, "overhead"),  # a third of 900 ms
        ({"overhead": 300, "io": 270}, "io"),
        ({"overhead": 250, "d2h": 400}, "inconclusive"),
    ],
)
def test_steps_that_were_timed_make_up_for_one_or_two_iterations(parts, expected):
    rank = records.rank(step(**parts), steps=2)
    assert decide(rank).bound == "inconclusive"
    timed = decide(rank, unprofiled_ms=900.0, observer_effect=TIMED)
    assert timed.bound == expected


def test_a_doubtful_time_does_not_make_up_for_more_iterations():
    rank = records.rank(step(overhead=400), steps=2)
    longer = ObserverEffect(profiled_step_ms=1_000.0, unprofiled_step_ms=2_000.0, ratio=0.5)
    assert decide(rank, unprofiled_ms=2_000.0, observer_effect=longer).bound == "inconclusive"


@pytest.mark.parametrize(("steps", "most"), [(1, 0.5), (2, 0.5), (3, 0.9)])
def test_of_one_or_two_iterations_no_verdict_is_sure(steps, most):
    found = terms(records.rank(step(900), steps=steps))
    assert sum(found.values()) == pytest.approx(most)


def test_no_iteration_is_no_verdict():
    decision = decide(records.rank(step(), iterations_used=0))
    assert decision.missing[0].startswith("no usable iteration")


def test_the_marks_of_an_iteration_count_as_much_as_iterations():
    """Two rollouts with four updates each show eight steps of training."""
    marks = StepMarker(kind="range", pattern="step", count=2, confidence=0.95, per_iteration=4)
    two = records.rank(step(400, 300), steps=2)
    assert decide(two).bound == "inconclusive"
    assert decide(replace(two, step_marker=marks)).bound == "io"
    batches = replace(two, summary=replace(two.summary, micro_batches=4))
    assert decide(batches).bound == "io"


def test_the_worst_rank_decides_what_is_missing_and_everything_is_listed():
    poor = records.rank(step(idle_unexplained=900), 1, coverage=0.5)
    decision = decide(records.rank(step()), poor)
    assert len(decision.missing) == 2


def test_an_inconclusive_verdict_has_no_confidence_and_names_what_is_missing():
    short = [records.rank(step(400, 300), steps=2)]
    verdict = judge(short, None, records.quality(), frozenset(), None, Thresholds())
    assert (verdict.confidence, verdict.confidence_terms) == (0, [])
    assert verdict.missing[0] in verdict.headline


def terms(*ranks, **options):
    return {t.name: t.value for t in records.judge_parts(ranks, **options)[2]}


@pytest.mark.parametrize(
    ("shares", "margin"),
    [
        ((200, 0, 0), 0),
        ((275, 0, 0), 0.225),
        ((350, 0, 0), 0.45),
        ((900, 0, 0), 0.45),
        ((125, 0, 0), 0.225),
        ((0, 0, 0), 0.45),
        ((300, 210, 0), 0.12),  # 4 points from being mixed
        ((160, 0, 155), 0.015),  # half a point from being one bound only
        ((300, 0, 290), 0.12),  # 4 points of lead from being io
        ((160, 0, 149), 0.003),  # a tenth of a point from being mixed
    ],
)
def test_confidence_grows_with_the_distance_to_the_nearest_threshold(shares, margin):
    found = terms(records.rank(step(*shares)))
    assert (found["base"], found["margin"]) == pytest.approx((0.5, margin))


def test_a_majority_of_the_capture_is_measured_from_one_half():
    found = terms(records.rank(step(575), marked=False))
    assert found == pytest.approx({"base": 0.5, "margin": 0.225, "no-step-marker": -0.25})


RUN = {"together": records.run()}
INFERRED = records.host(data_wait_inferred_ns=100 * records.MS * records.STEPS)
WEAK = StepMarker(kind="kernels", pattern="adam", count=12, confidence=0.6)


@pytest.mark.parametrize(
    ("rank", "options", "term"),
    [
        (records.rank(step(), steps=7), {}, {"few-iterations": -0.05}),
        (records.rank(step(), attributed_share=0.9), {}, {"unattributed": -0.1}),
        (records.rank(step(), attributed_share=0.5), {}, {"unattributed": -0.2}),
        (records.rank(step(), attributed_share=0.0), {}, {"unattributed": -0.2}),
        (records.rank(step(400), attributed_share=0.5), {}, {}),
        (records.rank(step(communication=400)), {}, {"single-rank": -0.2}),
        (records.rank(step(communication=400)), RUN, {}),
        (records.rank(step(0, 300, 290)), {}, {"single-rank": -0.2}),
        (records.rank(step(300, 0, 290)), {}, {}),
        (records.rank(step(400), host=INFERRED), {}, {"inferred-data-wait": -0.05}),
        (records.rank(step(300, 0, 290), host=INFERRED), RUN, {"inferred-data-wait": -0.0667}),
        (records.rank(step(100), host=INFERRED), {}, {}),
        (records.rank(step(100, 300, 290), host=INFERRED), RUN, {}),
    ],
)
def test_weak_evidence_costs_confidence_where_it_matters(rank, options, term):
    found = terms(rank, **options)
    del found["base"], found["margin"]
    assert found == pytest.approx(term)


def test_a_weak_step_marker_costs_confidence():
    rank = replace(records.rank(step()), step_marker=WEAK)
    assert terms(rank)["step-marker"] == pytest.approx(-0.105)


@pytest.mark.parametrize(("coverage", "cost"), [(0.75, -0.05), (0.0, -0.2)])
def test_launches_without_gpu_rows_cost_confidence_where_nothing_is_known_of_borders(
    coverage, cost
):
    rank = records.rank(step(), marked=False, coverage=coverage)
    assert terms(rank)["coverage"] == pytest.approx(cost)


HEAVY = ("operators", "stacks", "memory")
KNOWN = ObserverEffect(profiled_step_ms=1_000, unprofiled_step_ms=1_000, ratio=1)


@pytest.mark.parametrize("mark", HEAVY)
@pytest.mark.parametrize("shares", [(0, 0, 900), (500, 0, 480)], ids=["overhead", "mixed"])
def test_overhead_in_a_heavily_profiled_trace_is_at_most_a_guess(mark, shares):
    _, _, found = records.judge_parts([records.rank(step(*shares))], profiled=[mark])
    assert found[-1].name == "observer-effect"
    assert confidence.total(found) <= 0.3


@pytest.mark.parametrize(
    ("shares", "options"),
    [
        ((0, 0, 900), {"profiled": ["shapes"]}),
        ((0, 0, 900), {"profiled": HEAVY, "observer_effect": KNOWN}),
        ((900, 0, 0), {"profiled": HEAVY}),
        ((0, 0, 190), {"profiled": HEAVY}),
    ],
    ids=["light marks", "known step time", "another bound", "overhead is secondary only"],
)
def test_otherwise_profiling_costs_no_confidence(shares, options):
    assert "observer-effect" not in terms(records.rank(step(*shares)), **options)


parts = st.fixed_dictionaries(
    {
        name: st.integers(0, 60)
        for name in ("idle_data_wait", "h2d", "d2h", "communication", "idle_host", "idle_latency")
    }
    | {"forward": st.integers(1, 60), "idle_unexplained": st.integers(0, 5)}
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(parts, min_size=1, max_size=3),
    st.integers(1, 12),
    st.booleans(),
    st.sets(st.sampled_from(HEAVY)),
    st.none() | st.integers(1, 400),
)
def test_shares_sum_to_one_and_terms_to_the_confidence(all_parts, steps, marked, marks, unprofiled):
    ranks = [records.rank(p, i, steps=steps, marked=marked) for i, p in enumerate(all_parts)]
    unprofiled_ns = None if unprofiled is None else unprofiled * 1e6
    verdict = judge(ranks, None, records.quality(), frozenset(marks), unprofiled_ns, Thresholds())
    assert sum(verdict.shares.values()) == pytest.approx(1, abs=1e-5)
    assert min(verdict.shares.values()) >= 0
    total = sum(term.value for term in verdict.confidence_terms)
    rounding = 0.0005 + 1e-9  # to three decimals
    assert abs(verdict.confidence - min(max(total, 0), 1)) <= rounding


def host_bound(**options):
    loop = Loop(steps=12, forward_ns=400_000, backward_ns=600_000, launch_gap_ns=900_000)
    trace = memory.trace(loop.scenario(), profiled=["operators", "stacks"])
    return traceprobe.analyze(trace, traceprobe.Options(**options))


def test_a_heavy_profiler_makes_overhead_a_guess_with_a_warning():
    report = host_bound()
    assert report.verdict.bound == "overhead"
    assert report.verdict.confidence <= 0.3
    (warning,) = report.quality.warnings
    assert warning.code == "observer-effect"
    assert "operators, stacks" in warning.message
    assert "--unprofiled-step-ms" in warning.message


@pytest.mark.parametrize(
    ("kind", "where"), [("range", "between steps"), ("kernels", "in no call"), (None, "in no call")]
)
def test_only_ranges_have_something_between_them(kind, where):
    waits = records.host(data_wait_inferred_ns=600 * records.STEPS * records.MS)
    rank = records.rank(step(600), host=waits, marked=kind is not None)
    if kind is not None:
        rank = replace(rank, step_marker=replace(rank.step_marker, kind=kind))
    verdict = judge([rank], None, records.quality(), frozenset(), None, Thresholds())
    (said,) = (reason for reason in verdict.reasons if "for data" in reason)
    assert said.endswith(f"while the step thread is {where}")


@pytest.mark.parametrize(("unprofiled_ms", "beside"), [(1.4, ", under the profiler"), (None, "")])
def test_what_the_profiler_made_longer_is_said_to_be_as_recorded(unprofiled_ms, beside):
    report = host_bound(unprofiled_step_ms=unprofiled_ms)
    (idle,) = (said for said in report.verdict.reasons if said.startswith("idle time"))
    assert idle.startswith(f"idle time besides data waits{beside}: late launches")
    (late,) = (f.evidence[0] for f in report.findings if f.id == "host-overhead")
    assert late.endswith(f"launch and dependency latency{beside}")


def test_the_unprofiled_step_time_settles_it():
    report = host_bound(unprofiled_step_ms=1.1)
    assert report.verdict.bound == "compute"
    assert report.quality.warnings == []
    assert report.quality.observer_effect.unprofiled_step_ms == 1.1
    assert report.quality.observer_effect.ratio == pytest.approx(
        report.ranks[0].summary.step_ms.mean / 1.1, abs=1e-4
    )


def test_a_step_that_took_longer_without_the_profiler_was_timed_under_other_conditions():
    report = host_bound(unprofiled_step_ms=9.5)
    told = report.verdict.headline
    assert re.search(r"of each [\d.]+ ms step \(9.50 ms without the profiler\) goes to", told)
    assert report.quality.observer_effect.other_conditions
    assert report.step_ms == report.quality.observer_effect.profiled_step_ms
    assert now_ms(report) == report.step_ms


@pytest.mark.parametrize("unprofiled_ms", [1.1, 7.4])
def test_a_step_that_a_profiler_can_have_made_longer_is_the_one_of_predictions(unprofiled_ms):
    report = host_bound(unprofiled_step_ms=unprofiled_ms)
    assert not report.quality.observer_effect.other_conditions
    assert report.step_ms == unprofiled_ms


@pytest.mark.parametrize(
    ("parts", "marks", "begins"),
    [
        (
            step(0, 0, 600),
            ["operators"],
            "Possibly overhead-bound: the profiler's own cost is unknown. 60 % of each 1,000 ms",
        ),
        (step(0, 0, 600), [], "60 % of each 1,000 ms step goes to host overhead"),
        (
            step(500, 0, 480),
            ["stacks"],
            "Possibly mixed: the profiler's own cost is unknown. Two causes are about equal: 50 %",
        ),
    ],
)
def test_what_is_hardly_more_than_a_guess_is_headlined_as_possible(parts, marks, begins):
    ranks = [records.rank(parts)]
    verdict = judge(ranks, None, records.quality(), frozenset(marks), None, Thresholds())
    assert verdict.headline.startswith(begins)
    guessed = verdict.confidence <= Thresholds().low_confidence
    assert verdict.headline.startswith("Possibly") is guessed is bool(marks)


@pytest.mark.parametrize(
    ("overhead", "unprofiled_ms", "said"),
    [
        (40, 1_000, "I/O, communication and overhead each take less than 5 %"),
        (100, 1_000, "I/O and communication each take less than 5 %; overhead takes 10.0 % of the"),
        (300, 1_000, "I/O and communication each take less than 5 %; overhead takes 30.0 % of the"),
        (100, None, "overhead takes 10.0 %, below the 20 % that would make it the bound"),
    ],
)
def test_a_reason_for_compute_says_how_large_ruled_out_overhead_is(overhead, unprofiled_ms, said):
    ranks = [records.rank(step(0, 0, overhead))]
    step_ns = None if unprofiled_ms is None else unprofiled_ms * 1e6
    marks = frozenset({"operators"})
    verdict = judge(ranks, None, records.quality(), marks, step_ns, Thresholds())
    assert verdict.bound == "compute"
    assert verdict.reasons[0].startswith(said)


@pytest.mark.parametrize(
    ("unprofiled_ms", "said"),
    [
        (None, "each 1,000 ms step goes"),
        (1_010, "each 1,000 ms step goes"),
        (1_030, "each 1,000 ms step (1,030 ms without the profiler) goes"),
        (800, "each 800 ms step (1,000 ms with the profiler) goes"),
        (600, "each 700 ms step (600 ms without the profiler) goes"),
    ],
)
def test_the_headline_names_the_step_that_predictions_are_of(unprofiled_ms, said):
    ranks = [records.rank(step(0, 0, 300))]
    step_ns = None if unprofiled_ms is None else unprofiled_ms * 1e6
    verdict = judge(ranks, None, records.quality(), frozenset(), step_ns, Thresholds())
    assert said in verdict.headline


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"margin": 0.45}, "high confidence (95 %)"),
        ({"margin": 0.3}, "high confidence (80 %)"),
        ({"margin": 0.2951}, "medium confidence (79 %): the shares are close to another verdict"),
        ({"margin": 0.1}, "medium confidence (60 %): the shares are close to another verdict"),
        (
            {"margin": 0.45, "few-iterations": -0.45},
            "medium confidence (50 %): the reason of few-iterations",
        ),
        (
            {"margin": 0.45, "few-iterations": -0.45, "observer-effect": -0.2},
            "low confidence (30 %): the profiler's own cost is unknown",
        ),
    ],
)
def test_how_sure_a_verdict_is_in_words(values, words):
    terms = [
        Term(name=name, value=value, why=f"the reason of {name}")
        for name, value in {"base": 0.5, **values}.items()
    ]
    stated = replace(VERDICT, confidence=confidence.total(terms), confidence_terms=terms)
    assert how_sure(stated) == words
    assert how_sure(replace(stated, bound="inconclusive")) == ""


@pytest.mark.parametrize(
    ("bound", "secondary", "words"),
    [
        ("io", None, ""),
        ("io", "compute", "then compute"),
        ("mixed", "io+overhead", "I/O and overhead"),
    ],
)
def test_what_comes_after_the_bound(bound, secondary, words):
    assert runner_up(bound, secondary) == words


def test_the_page_is_called_as_the_headline_says():
    assert bound_label("io", 0.3, {"low_confidence": 0.3}) == "Possibly I/O-bound"
    assert bound_label("compute", 0.1, {"low_confidence": 0.3}) == "Possibly compute-bound"
    assert bound_label("compute", 0.31, {"low_confidence": 0.3}) == "Compute-bound"
    assert bound_label("compute", 0.1, {}) == "Compute-bound"
    assert bound_label("inconclusive", 0.0, {"low_confidence": 0.3}) == "Inconclusive"

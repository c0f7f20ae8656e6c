"""Shares of the run as it is without a profiler: what survives one, what shrinks, what is waiting.

Steps last 100 ms under the profiler, unless a test says otherwise.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import memory
from tests.evidence import evidence
from tests.matched_ranks import EARLY, LATE, scenario_of_rank
from traceprobe.records.host_stalls import GarbageCollections
from traceprobe.records.recording import RecordedBlock, Recording
from traceprobe.verdict import wording
from traceprobe.verdict.bounds import decide
from traceprobe.verdict.calibration_doubt import calibration_doubt
from traceprobe.verdict.confidence import terms as confidence_terms
from traceprobe.verdict.correction import correct
from traceprobe.verdict.late_loader import with_late_loader

HEAVY = frozenset({"operators"})
LIGHT = frozenset({"shapes"})
HOST = {"forward": 60, "idle_host": 25, "idle_sync": 10, "idle_latency": 5}
"""60 ms of computation, 40 of overhead."""
COMM = {"forward": 40, "communication": 40, "idle_host": 20}


def shares(corrected, **expected):
    """Whether these are the shares that are not 0."""
    assert corrected.shares == pytest.approx(
        dict.fromkeys(corrected.shares, 0) | expected, abs=1e-6
    )


def single(parts, unprofiled_ms=None, *, together=None, profiled=HEAVY, data_wait_ms=None, **more):
    rank = records.rank(parts, **more)
    if data_wait_ms is not None:
        rank = replace(rank, timed_wait_ms=data_wait_ms)
    unprofiled = None if unprofiled_ms is None else unprofiled_ms * 1e6
    return correct([rank], together, unprofiled, profiled)


def with_skew(skew, parts=COMM, **more):
    """A rank of a run that was matched; of its exposed communication, `skew` is waiting."""
    found = records.communication(parts["communication"], skew=skew)
    return records.rank(parts, communication=found, **more)


def test_without_an_unprofiled_step_time_the_shares_stay_as_captured():
    corrected = single(HOST)
    shares(corrected, compute=0.6, overhead=0.4)
    assert (corrected.overhead_ruled_out, corrected.split_unknown) == (False, False)
    assert corrected.notes == []


def test_overhead_shrinks_until_the_step_fits():
    corrected = single(HOST, 80)
    shares(corrected, compute=60 / 80, overhead=20 / 80)
    assert corrected.notes == [
        "rank 0: 20.0 ms per step of host time and waiting occur only under the profiler and were "
        "taken out"
    ]


def test_overhead_never_shrinks_below_nothing_and_the_residual_is_reported():
    corrected = single(HOST, 50)
    shares(corrected, compute=1)
    assert corrected.notes[0] == (
        "rank 0: 10.0 ms per step of GPU work, copies and data wait do not fit into the "
        "unprofiled step"
    )


@pytest.mark.parametrize(("unprofiled_ms", "residuals"), [(59, 0), (58.5, 1)])
def test_a_residual_of_two_percent_is_not_worth_a_note(unprofiled_ms, residuals):
    notes = single(HOST, unprofiled_ms).notes
    assert sum("do not fit" in note for note in notes) == residuals


def test_work_of_the_gpu_and_its_copies_survive_a_profiler():
    parts = {"forward": 30, "h2d": 20, "d2h": 5, "memory": 5, "idle_profiler": 10, "idle_host": 30}
    shares(single(parts, 75), compute=35 / 75, io=20 / 75, other=15 / 75, overhead=5 / 75)


def test_a_wait_for_data_stays_where_nothing_else_is_known():
    parts = {"forward": 30, "idle_data_wait": 30, "idle_host": 40}
    shares(single(parts, 65), compute=30 / 65, io=30 / 65, overhead=5 / 65)


def test_a_measured_wait_for_data_replaces_the_traces():
    parts = {"forward": 40, "idle_data_wait": 10, "h2d": 5, "idle_host": 45}
    corrected = single(parts, 100, data_wait_ms=50)
    shares(corrected, compute=0.4, io=0.55, overhead=0.05)


def test_a_measured_wait_for_data_is_at_most_what_the_unprofiled_step_has_room_for():
    parts = {"forward": 40, "idle_data_wait": 10, "idle_host": 50}
    shares(single(parts, 80, data_wait_ms=70), compute=0.5, io=0.5)


def test_an_unprofiled_step_that_is_no_shorter_rules_the_host_out_if_it_was_slowed():
    corrected = single(HOST, 100)
    assert corrected.overhead_ruled_out
    shares(corrected, compute=0.6, overhead=0.4)
    assert "the host does not limit this run" in corrected.notes[-1]
    assert not single(HOST, 99).overhead_ruled_out
    assert not single(HOST, 100, profiled=LIGHT).overhead_ruled_out


@pytest.mark.parametrize(("pause_ms", "ruled_out"), [(19, True), (20, False), (25, False)])
def test_a_profiler_does_not_slow_a_host_that_pauses(pause_ms, ruled_out):
    rank = records.rank(HOST)
    paused = records.host(pause_ns=pause_ms * rank.summary.steps * 1_000_000)
    rank = records.rank(HOST, host=paused)
    assert correct([rank], None, 100e6, HEAVY).overhead_ruled_out is ruled_out


def test_pauses_and_stalls_may_have_lasted_longer_in_the_steps_that_were_timed():
    rank = records.rank(HOST)
    steps = rank.summary.steps
    lasting = records.host(
        pause_ns=20_000_000 * steps,
        garbage_collections=GarbageCollections(
            count=steps,
            iterations=steps,
            host_ns=15_000_000 * steps,
            longest_ns=15_000_000,
            cost_ns=15_000_000 * steps,
            lines={},
        ),
    )
    held_up = records.rank(HOST, host=lasting)
    assert correct([rank], None, 120e6, HEAVY).calibration_doubt
    explained = correct([held_up], None, 120e6, HEAVY)
    assert (explained.calibration_doubt, explained.overhead_ruled_out) == (None, False)
    assert "pauses and stalls of the host" in explained.notes[-1]
    # Four tenths of 35 ms, and a tenth of all.
    assert correct([held_up], None, 126e6, HEAVY).calibration_doubt


@pytest.mark.parametrize(
    ("waited", "in_process", "hidden"),
    [(0, False, True), (0, True, False), (None, False, False)],
    ids=["workers", "no workers", "no loader"],
)
def test_a_far_longer_step_may_wait_for_workers_that_were_ahead(waited, in_process, hidden):
    rank = records.rank({"forward": 90}, host=records.host(loader_in_process=in_process))
    parts = {**rank.summary.partition_ns, "idle_data_wait": waited}
    rank = replace(rank, summary=replace(rank.summary, partition_ns=parts))
    verdict = evidence(rank, unprofiled_ms=180, profiled=HEAVY).verdict
    assert any("a slow loader is hidden" in reason for reason in verdict.reasons) == hidden
    (why,) = [term.why for term in verdict.confidence_terms if term.name == "calibration"]
    assert ("waits for its loader" in why) == hidden


@pytest.mark.parametrize(("others", "ruled_out"), [(10, True), (12, False)])
def test_the_step_of_the_run_rules_the_host_out_not_that_of_one_rank(others, ruled_out):
    short = records.rank({"forward": 89})
    long = [records.rank({"forward": 90, "idle_host": others}, number) for number in (1, 2)]
    # The mean is 96.3 or 97.7 ms.
    corrected = correct([short, *long], None, 97e6, HEAVY)
    assert corrected.overhead_ruled_out is ruled_out
    assert any("no longer" in note for note in corrected.notes) is ruled_out


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({"forward": 50, "idle_host": 20, "idle_data_wait": 30}, "io"),
        ({"forward": 50, "idle_host": 20, "communication": 30}, "communication"),
        (HOST, "compute"),
    ],
)
def test_where_the_host_is_ruled_out_the_next_candidate_decides(parts, bound):
    rank = records.rank(parts)
    corrected = correct([rank], None, 100e6, HEAVY)
    decision = decide(corrected, [rank], records.quality(), records.THRESHOLDS)
    assert decision.bound == bound
    assert decision.secondary != "overhead"


@pytest.mark.parametrize(
    "parts",
    [
        {"forward": 22, "idle_host": 65, "communication": 13},
        {"forward": 40, "idle_host": 25, "communication": 18, "idle_data_wait": 17},
    ],
)
def test_a_host_that_is_ruled_out_and_yet_idles_the_most_allows_no_verdict(parts):
    rank = records.rank(parts)
    corrected = correct([rank], None, 100e6, HEAVY)
    decision = decide(corrected, [rank], records.quality(), records.THRESHOLDS)
    assert (decision.bound, decision.deciding) == ("inconclusive", ())
    (missing,) = decision.missing
    assert f"overhead takes {parts['idle_host']} %" in missing
    assert "no longer than without a profiler" in missing


WAITS = {"forward": 30, "idle_host": 45, "idle_data_wait": 25}


def test_what_a_profiler_slows_a_host_that_does_not_set_the_pace_is_waiting_without_it():
    decision, corrected, terms = records.judge_parts([records.rank(WAITS)], None, HEAVY, 100)
    shares(corrected, compute=0.3, io=0.25 + 0.45 * 0.45, overhead=0.55 * 0.45)
    assert "45 % of late launches are attributed to the profiler" in corrected.notes[-1]
    assert (decision.bound, decision.secondary) == ("io", None)
    assert {t.name: t.value for t in terms}["taken-over"] == pytest.approx(-0.45 * 0.45, abs=1e-4)


@pytest.mark.parametrize(
    ("parts", "facts", "keeps_up"),
    [
        (WAITS, {}, True),
        (WAITS, {"timed_wait_ms": 25}, False),  # timed without the profiler
        (WAITS, {"host": records.host(loader_in_process=True)}, False),
        ({"forward": 36, "idle_host": 45, "idle_data_wait": 19}, {}, False),
        ({"forward": 10, "idle_host": 45, "idle_data_wait": 22, "communication": 23}, {}, False),
        ({"forward": 30, "idle_latency": 45, "idle_data_wait": 25}, {}, False),  # on their way
    ],
)
def test_nor_where_something_else_is_known_or_waited_for(parts, facts, keeps_up):
    facts = dict(facts)
    waited = facts.pop("timed_wait_ms", None)
    rank = records.rank(parts, **facts)
    if waited is not None:
        rank = replace(rank, timed_wait_ms=waited)
    corrected = correct([rank], None, 100e6, HEAVY, keeps_up=keeps_up)
    assert corrected.overhead_ruled_out
    assert corrected.shares["overhead"] == pytest.approx(0.45)
    assert not corrected.taken_over


def test_pauses_of_the_host_last_as_long_with_a_profiler():
    steps = records.rank(WAITS).summary.steps
    rank = records.rank(WAITS, host=records.host(pause_ns=15_000_000 * steps))
    corrected = correct([rank], None, 100e6, HEAVY)
    shares(corrected, compute=0.3, io=0.25 + 0.45 * 0.3, overhead=0.45 - 0.45 * 0.3)


def test_a_profiled_step_that_is_much_shorter_says_nothing_of_the_host():
    rank = records.rank({"forward": 22, "idle_host": 65, "communication": 13})
    decision, corrected, terms = records.judge_parts([rank], None, HEAVY, 111)
    assert not corrected.overhead_ruled_out
    assert decision.bound == "overhead"
    assert any("different conditions" in note for note in corrected.notes)
    assert {t.name: t.value for t in terms}["calibration"] == -0.1
    near = correct([rank], None, 109e6, HEAVY)
    assert (near.overhead_ruled_out, near.calibration_doubt) == (True, None)


def test_of_one_rank_communication_and_overhead_share_the_remainder():
    corrected = single(COMM, 70)
    shares(corrected, compute=40 / 70, communication=20 / 70, overhead=10 / 70)
    assert corrected.split_unknown


def test_a_step_that_fits_leaves_the_split_as_captured():
    corrected = single(COMM, 100)
    shares(corrected, compute=0.4, communication=0.4, overhead=0.2)
    assert corrected.skew is None
    assert not corrected.split_unknown
    assert not single(HOST, 80).split_unknown


def test_an_unknown_split_costs_confidence():
    rank = records.rank(COMM)
    _, corrected, terms = records.judge_parts([rank], unprofiled_ms=70)
    assert corrected.split_unknown
    assert {t.name: t.value for t in terms}["split-unknown"] == -0.1


@pytest.mark.parametrize(
    ("unprofiled_ms", "expected"),
    [
        (90, {"compute": 40, "communication": 10, "overhead": 20, "other": 20}),
        (70, {"compute": 40, "communication": 10, "overhead": 20}),
        (65, {"compute": 40, "communication": 10, "overhead": 15}),
        (45, {"compute": 40, "communication": 5}),
    ],
    ids=["part of the skew", "no skew", "less overhead", "less than the transfer"],
)
def test_of_all_ranks_transfer_is_kept_and_the_skew_is_dropped_first(unprofiled_ms, expected):
    corrected = correct([with_skew(30)], records.run(), unprofiled_ms * 1e6, HEAVY)
    shares(corrected, **{name: ms / unprofiled_ms for name, ms in expected.items()})
    assert not corrected.split_unknown
    assert corrected.skew == pytest.approx(expected.get("other", 0) / unprofiled_ms)


@pytest.mark.parametrize("skew", [0, 10, 40])
def test_of_one_chosen_rank_nothing_exceeds_the_remainder_whatever_it_waited(skew):
    alone = records.run(transfer_ns=None, skew_ns=None)
    corrected = correct([with_skew(skew)], alone, 70e6, HEAVY)
    assert corrected.shares["compute"] == pytest.approx(40 / 70, abs=1e-6)


def test_of_one_chosen_rank_that_only_waited_no_overhead_is_left_to_scale():
    parts = {"forward": 40, "communication": 60}
    corrected = correct([with_skew(60, parts)], None, 70e6, HEAVY)
    shares(corrected, compute=40 / 70, communication=30 / 70)


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        (None, {"overhead": 0.2, "other": 0.3}),
        ({"io": 1.0}, {"io": 0.3, "overhead": 0.2}),
        ({"io": 0.5, "overhead": 0.4, "other": 0.1}, {"io": 0.15, "overhead": 0.32, "other": 0.03}),
    ],
)
def test_waiting_for_a_rank_counts_as_that_ranks_causes(causes, expected):
    causes = causes and dict.fromkeys(("io", "overhead", "compute", "other"), 0.0) | causes
    corrected = correct([with_skew(30)], records.run(skew_causes=causes), None, HEAVY)
    shares(corrected, compute=0.4, communication=0.1, **expected)
    assert corrected.unexplained_wait == pytest.approx(expected.get("other", 0))
    assert corrected.skew == pytest.approx(0.3)


def test_of_one_chosen_rank_waiting_cannot_be_told_from_communication():
    alone = records.run(transfer_ns=None, skew_ns=None)
    corrected = correct([with_skew(30)], alone, None, HEAVY)
    shares(corrected, compute=0.4, communication=0.4, overhead=0.2)


def one_waits(ms):
    """Two ranks, of which the second waits so long for its loader without the profiler."""
    alone, late = with_skew(0), with_skew(0, number=1)
    return [replace(alone, timed_wait_ms=0.0), replace(late, timed_wait_ms=ms)]


def test_the_rank_whose_loader_is_late_is_the_straggler_where_that_is_most_of_the_waiting():
    run = records.run(skew_ns=5 * records.MS)
    found = with_late_loader(run, one_waits(60.0))
    assert (found.straggler_rank, found.straggler_cause) == (1, "io")
    assert found.unseen_skew_ms == pytest.approx(60)
    assert wording.late(found, 100.0) == [
        "without the profiler the other ranks wait 60.0 ms a step for rank 1, whose loader is late"
    ]
    assert with_late_loader(run, one_waits(4.0)) == run
    both = [replace(rank, timed_wait_ms=60.0) for rank in one_waits(60.0)]
    assert with_late_loader(run, both) == run
    assert with_late_loader(run, one_waits(60.0)[1:]) == run


def test_ranks_wait_for_the_one_whose_loader_is_slower_than_the_capture_shows():
    """Rank 1 waits 60 ms without the profiler, so rank 0 waits for rank 1."""
    corrected = correct(one_waits(60.0), records.run(), 160e6, frozenset())
    assert corrected.step_ms == pytest.approx(160)
    shares(corrected, compute=0.25, communication=0.25, overhead=0.125, io=0.375)
    assert corrected.skew == pytest.approx(0.375 / 2)
    assert corrected.calibration_doubt is None


def test_a_rank_waits_no_longer_for_a_loader_than_the_step_has_room():
    corrected = correct(one_waits(60.0), records.run(), 110e6, frozenset())
    assert corrected.step_ms == pytest.approx(110, rel=0.02)


def test_a_rank_counts_by_its_shares_however_long_its_steps_are():
    ranks = [records.rank({"forward": 10, "h2d": 10}), records.rank({"forward": 300}, 1)]
    shares(correct(ranks, None, None, HEAVY), compute=0.75, io=0.25)


def test_each_rank_is_corrected_by_itself():
    ranks = [records.rank(HOST), records.rank({"forward": 75, "idle_host": 25}, 1)]
    corrected = correct(ranks, None, 80e6, HEAVY)
    shares(corrected, compute=(60 + 75) / 160, overhead=(20 + 5) / 160)
    assert [note.split(":")[0] for note in corrected.notes] == ["rank 0", "rank 1"]


def test_the_whole_capture_is_no_step_to_correct():
    rank = records.rank(HOST, marked=False)
    shares(correct([rank], None, 10e6, HEAVY), compute=0.6, overhead=0.4)


def test_a_class_that_was_not_observed_counts_as_nothing():
    rank = records.rank(HOST)
    unseen = rank.summary.partition_ns | {"idle_data_wait": None, "communication": None}
    blind = replace(rank, summary=replace(rank.summary, partition_ns=unseen))
    shares(correct([blind], None, 80e6, HEAVY), compute=0.75, overhead=0.25)


def test_a_chosen_rank_of_a_real_run_is_corrected_to_its_unprofiled_step():
    traces = [memory.trace(scenario_of_rank(0, *EARLY)), memory.trace(scenario_of_rank(1, *LATE))]
    options = traceprobe.Options(rank=0, unprofiled_step_ms=0.005)
    verdict = traceprobe.analyze(traces, options).verdict
    assert verdict.shares["compute"] == pytest.approx(1_100 / 5_000)


busy = st.fixed_dictionaries(
    {name: st.integers(0, 40) for name in ("h2d", "d2h", "memory", "idle_data_wait", "idle_sync")}
    | {name: st.integers(0, 60) for name in ("idle_host", "communication")}
    | {"forward": st.integers(1, 60)}
)


@settings(max_examples=80, deadline=None)
@given(busy, st.integers(1, 300), st.integers(0, 60) | st.none(), st.booleans())
def test_the_corrected_step_keeps_gpu_work_and_is_as_long_as_it_can(parts, unprofiled, skew, all_):
    skew = None if skew is None else min(skew, parts["communication"])
    together = records.run() if all_ and skew is not None else None
    rank = with_skew(skew if together else None, parts)
    corrected = correct([rank], together, unprofiled * 1e6, frozenset())
    kept = parts["forward"] + parts["memory"]
    survives = kept + sum(parts[p] for p in ("h2d", "d2h"))  # waiting has to fit
    step = min(sum(parts.values()), max(unprofiled, survives))
    assert sum(corrected.shares.values()) == pytest.approx(1, abs=5e-6)
    assert corrected.shares["compute"] == pytest.approx(kept / step, abs=2e-6)
    captured = correct([rank], together, None, frozenset()).shares
    assert corrected.shares["overhead"] * step <= captured["overhead"] * sum(parts.values()) + 1e-3


def test_a_calibration_in_doubt_rules_nothing_out_and_costs_confidence():
    rank = records.rank(HOST)
    doubted = correct([rank], None, 100e6, HEAVY, doubt="the pace changed")
    assert not doubted.overhead_ruled_out
    assert doubted.notes == ["the pace changed"]
    decision = decide(doubted, [rank], records.quality(), records.THRESHOLDS)
    terms = confidence_terms(
        *(decision, doubted, [rank], None, records.quality(), HEAVY, records.THRESHOLDS)
    )
    assert {t.name: t.value for t in terms}["calibration"] == -0.1
    assert decision.bound == "overhead"


def test_a_doubt_about_no_calibration_is_none():
    assert correct([records.rank(HOST)], None, None, HEAVY, doubt="x").calibration_doubt is None


def recording(*blocks, steady=True, period=1):
    return Recording(
        warmup_steps=8,
        steady=steady,
        period=period,
        blocks=[
            RecordedBlock(profiled=ms < 0, steps=10, step_ms=abs(ms), kept=kept, sm_mhz=None)
            for ms, kept in blocks
        ],
    )


@pytest.mark.parametrize(
    ("found", "doubt"),
    [
        (recording((50, True), (-80, True), (51, True)), None),
        (recording((90, False), (-80, False), (50, True), (-70, True), (51, True)), None),
        (recording((50, True), (-80, True), (51, True), period=5), None),
        (recording((50, False), (-80, False), (60, True), (-80, True), (61, True)), "profiler ran"),
        (recording((50, True), (-80, True)), "the program ended before"),
        (recording((50, True), (-80, True), (60, False)), "the steps before it count"),
        (recording((50, True), (-80, True), (54, True)), "50.0 ms before"),
        (recording((50, True), (-80, True), (51, True), period=3), "after 3 steps"),
        (recording((50, True), (-80, True), (51, True), steady=False), "8 steps of warm-up"),
    ],
)
def test_a_recording_is_trusted_that_was_steady_before_and_after(found, doubt):
    said = calibration_doubt(found)
    assert said is None if doubt is None else doubt in said

"""Why ranks wait for each other: apportioned by what the late ranks have more of, in ns.

A step lasts 10 000 ns. In it a rank computes until `busy`, is kept by its host until it arrives at
the collective, and leaves it at 5 000 with all others. A collective that nobody waits in takes
1 000 ns.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceprobe
from tests import records
from tests.builders import memory
from tests.builders.loop import Loop
from tests.builders.scenario import COMM_STREAM, Process, Script
from tests.matched_ranks import waits_between
from traceprobe.verdict.bounds import decide
from traceprobe.verdict.correction import correct

PITCH = 10_000
STEPS = 7  # six windows
EARLY, LATE, END = 2_000, 4_000, 5_000


def rank(number, arrivals, *, busy=None, data=None, copies=None, world=2, clock=0):
    """A rank by when it arrives at the collective of each step.

    Args:
        busy: per step, when its computation ends; by default all of it is done at `EARLY`.
        data, copies: per step, when a wait for data, or copies to the host, end that begin then.
    """
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=world)
    for k, arrival in enumerate(arrivals):
        at = k * PITCH
        done = busy[k] if busy else EARLY
        script.range(f"step {k}", at, at + PITCH)
        script.range("forward", at + 50, at + 1_000)
        script.op("kernel", at + 600, at + done, (at + 60, at + 70))
        if data:
            script.range("data_loading", at + done, at + data[k])
        if copies:
            script.op("d2h", at + done, at + copies[k], (at + 80, at + 90), bytes=4)
        call = at + max(arrival - 20, 100)
        script.op("comm", at + arrival, at + END, (call, call + 5), stream=COMM_STREAM)
    return script.build().shifted(clock)


def always(number, arrival, **more):
    return rank(number, [arrival] * STEPS, **{k: [v] * STEPS for k, v in more.items()})


def causes(*scenarios):
    """Waiting by cause per late rank, without those that cause nothing; ns in all steps."""
    return [
        {k: round(v) for k, v in c.items() if round(v)} for c in waits_between(*scenarios).causes_ns
    ]


def analyze(*scenarios, profiled=(), **options):
    traces = [memory.trace(scenario, profiled) for scenario in scenarios]
    return traceprobe.analyze(traces, traceprobe.Options(**options))


WAITED = (STEPS - 1) * (LATE - EARLY)


def two_at_once(number, arrival, *, data=0):
    """A rank whose gradients go out in two messages, by two threads, of which either ends first."""
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=2)
    for k in range(STEPS):
        at = k * PITCH
        script.range(f"step {k}", at, at + PITCH)
        script.range("forward", at + data + 50, at + data + 1_000)
        if data:
            script.range("data_loading", at + 20, at + data)
        script.op("kernel", at + data + 600, at + arrival, (at + data + 60, at + data + 70))
        ends = [END, END + 100] if k % 2 else [END + 100, END]
        for n, end in enumerate(ends):
            begin = at + arrival + 10 * n
            call = (begin - 20, begin - 15)
            script.op("comm", begin, at + end, call, stream=COMM_STREAM + n)
    return script.build()


def test_two_messages_at_once_wait_once():
    """What one rank waits for both of them is explained by what the other does once."""
    later = LATE - EARLY
    (early, late) = causes(two_at_once(0, EARLY), two_at_once(1, LATE, data=later))
    assert early == {}
    assert late["io"] == pytest.approx(WAITED, rel=0.02)
    assert sum(late.values()) == pytest.approx(WAITED, rel=0.02)


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ({}, {"overhead": WAITED}),
        ({"busy": LATE - 20}, {"compute": WAITED * 0.99, "overhead": WAITED * 0.01}),
        ({"busy": 2_500}, {"compute": WAITED / 4, "overhead": WAITED * 3 / 4}),
        ({"data": 3_500}, {"io": WAITED * 3 / 4, "overhead": WAITED / 4}),
        ({"copies": LATE - 20}, {"other": WAITED * 0.99, "overhead": WAITED * 0.01}),
    ],
    ids=["host", "computation", "both", "data", "none of these"],
)
def test_waiting_is_shared_by_what_the_late_rank_has_more_of(late, expected):
    assert causes(always(0, EARLY), always(1, LATE, **late)) == [{}, pytest.approx(expected)]


def test_a_clock_of_its_own_changes_nothing():
    late = rank(1, [LATE] * STEPS, clock=-(10**15) - 7)
    assert causes(always(0, EARLY), late) == [{}, {"overhead": WAITED}]


def test_what_a_late_rank_has_less_of_takes_nothing_from_its_causes():
    # It computes 500 less, and so is kept by its host for 2 500 more.
    assert causes(always(0, EARLY), always(1, LATE, busy=1_500)) == [{}, {"overhead": WAITED}]


def test_an_excess_is_one_over_the_mean_of_the_others():
    early, middle, late = always(0, EARLY), always(1, 3_000), always(2, LATE, busy=3_000)
    found = waits_between(early, middle, late)
    # Over the mean: 1 000 of computation, 500 of the host; both others wait.
    assert found.late_ns == [0, 0, (STEPS - 1) * (2_000 + 1_000)]
    assert causes(early, middle, late)[2] == {
        "compute": (STEPS - 1) * 2_000,
        "overhead": (STEPS - 1) * 1_000,
    }


def turns(number, **more):
    """One of two ranks that come last in every other step."""
    late = [(k + number) % 2 == 1 for k in range(STEPS)]
    more = {k: [v if is_late else EARLY for is_late in late] for k, v in more.items()}
    return rank(number, [LATE if is_late else EARLY for is_late in late], **more)


def test_ranks_that_take_turns_are_late_for_their_own_reasons():
    found = causes(turns(0), turns(1, data=3_500))
    assert found == [
        {"overhead": WAITED / 2},
        {"io": WAITED * 3 / 8, "overhead": WAITED / 8},
    ]


def test_no_straggler_is_named_where_ranks_take_turns():
    report = analyze(turns(0), turns(1, data=3_500))
    run = report.run
    assert (run.straggler_rank, run.straggler_cause) == (None, None)
    assert run.skew_ns == 1_000
    assert run.skew_causes == {"io": 0.375, "overhead": 0.625, "compute": 0.0, "other": 0.0}
    reasons = " ".join(report.verdict.reasons)
    assert "ranks take turns" in reasons
    assert "I/O 38 %, overhead 62 %" in reasons
    assert report.verdict.shares["communication"] == pytest.approx(0.1)


@pytest.mark.parametrize(("times", "straggler"), [(3, None), (4, 1)])
def test_a_straggler_is_last_for_two_thirds_of_the_waiting(times, straggler):
    first = [LATE if k >= times else EARLY for k in range(STEPS)]
    second = [EARLY if k >= times else LATE for k in range(STEPS)]
    run = analyze(rank(0, first), rank(1, second)).run
    assert run.straggler_rank == straggler
    assert run.straggler_cause == (None if straggler is None else "overhead")


def test_ranks_that_come_last_together_are_waited_for_in_equal_parts():
    found = waits_between(always(0, EARLY), always(1, LATE), always(2, LATE))
    assert found.late_ns == [0, WAITED / 2, WAITED / 2]


def test_where_all_come_at_once_nobody_waits_and_there_is_nothing_to_explain():
    run = analyze(always(0, EARLY), always(1, EARLY)).run
    assert (run.skew_ns, run.skew_causes) == (0, None)


def test_a_straggler_that_nothing_explains_is_not_bound_by_communication():
    report = analyze(always(0, EARLY), always(1, LATE, copies=LATE - 20))
    assert (report.run.straggler_rank, report.run.straggler_cause) == (1, "other")
    assert report.verdict.shares["communication"] == pytest.approx(0.1)
    assert any("unexplained 99 %" in reason for reason in report.verdict.reasons)
    (told,) = (r for r in report.verdict.reasons if "late for no visible cause" in r)
    own = sum(rank.summary.share["other"] for rank in report.ranks) / 2
    waiting = float(told.partition(" %")[0]) / 100
    assert own + waiting == pytest.approx(report.verdict.shares["other"], abs=0.001)


def test_collectives_that_nothing_overlaps_are_looked_at_one_by_one():
    """Rank 0 is late for the first because it computes, rank 1 for the second by its host."""

    def twice(number, arrivals, busy):
        script = Script(Process(1_000 * (number + 1), rank=number), world_size=2)
        for k in range(STEPS):
            at = k * PITCH
            script.range(f"step {k}", at, at + PITCH)
            script.op("kernel", at + 600, at + busy, (at + 60, at + 70))
            for arrival, end in zip(arrivals, (5_000, 9_000), strict=True):
                call = at + arrival - 20
                script.op("comm", at + arrival, at + end, (call, call + 5), stream=COMM_STREAM)
        return script.build()

    found = causes(twice(0, (4_000, 6_000), 3_980), twice(1, (2_000, 8_000), 1_980))
    assert found == [{"compute": WAITED}, {"overhead": WAITED}]


def test_a_host_that_is_slow_beside_a_collective_does_not_pass_for_computation():
    """The late rank computes in the stretch in which the other one has long finished."""

    def overlapped(number, second, arrival):
        script = Script(Process(1_000 * (number + 1), rank=number), world_size=2)
        for k in range(STEPS):
            at = k * PITCH
            script.range(f"step {k}", at, at + PITCH)
            for begin in (1_000, second):
                script.op("kernel", at + begin, at + begin + 500, (at + begin - 20, at + begin - 9))
            for begin, end in ((1_500, 1_700), (arrival, 4_000)):
                call = (at + begin - 15, at + begin - 12)
                script.op("comm", at + begin, at + end, call, stream=COMM_STREAM)
        return script.build()

    (early, late) = causes(overlapped(0, 1_500, 2_000), overlapped(1, 3_300, 3_800))
    assert early == {}
    # 200 ns of its transfer had nothing beside it, since the host was late by then already.
    assert late == {"overhead": (STEPS - 1) * 1_600, "other": (STEPS - 1) * 200}


def test_waiting_that_computation_hides_costs_nothing_and_has_a_cause():
    hidden = always(0, EARLY, busy=END + 500)
    run = analyze(hidden, always(1, LATE, busy=END + 500, copies=END + 500)).run
    assert run.skew_ns == 1_000
    assert run.straggler_rank == 1
    assert run.skew_causes is not None


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(700, 3_800), st.integers(0, 1_000), st.integers(100, 1_000)),
        min_size=2,
        max_size=4,
    )
)
def test_every_nanosecond_of_waiting_has_one_cause(ranks):
    scenarios = []
    for number, (busy, loading, host) in enumerate(ranks):
        arrival = min(busy + loading + host, END - 100)
        data = min(busy + loading, arrival)
        more = {"busy": busy, "data": data} if loading else {"busy": busy}
        scenarios.append(always(number, arrival, world=None, **more))
    found = waits_between(*scenarios)
    assert sum(found.late_ns) == pytest.approx(sum(found.wait_ns))
    total = sum(sum(c.values()) for c in found.causes_ns)
    assert total == pytest.approx(sum(int(w.sum()) for w in found.exposed_wait))
    # Between two collectives that nothing overlaps, the last rank's excesses explain all of it.
    assert sum(c["other"] for c in found.causes_ns) == pytest.approx(0, abs=1)


MATCHED = {"io": 0.5, "overhead": 0.2, "compute": 0.1, "other": 0.2}


def test_the_skew_of_the_verdict_counts_for_its_causes():
    parts = {"forward": 40, "communication": 40, "idle_host": 20}
    found = records.communication(40, skew=30)
    together = records.run(skew_causes=MATCHED)
    corrected = correct([records.rank(parts, communication=found)], together, None, frozenset())
    assert corrected.shares == pytest.approx(
        {"compute": 0.43, "communication": 0.1, "overhead": 0.26, "io": 0.15, "other": 0.06}
    )
    assert corrected.unexplained_wait == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("skew", "bound"), [(24, "compute"), (26, "inconclusive"), (38, "inconclusive")]
)
def test_waiting_that_nothing_explains_forbids_a_verdict(skew, bound):
    """From a fifth of the step on it could be a bound, if its cause were known."""
    parts = {"forward": 62 - skew, "communication": skew, "memory": 38}
    mine = records.rank(parts, communication=records.communication(skew, skew=skew))
    together = records.run(skew_causes=MATCHED | {"io": 0.0, "overhead": 0.0, "other": 0.8})
    corrected = correct([mine], together, None, frozenset())
    decision = decide(corrected, [mine], records.quality(), records.THRESHOLDS)
    assert decision.bound == bound
    if bound == "inconclusive":
        share = f"{0.8 * skew:.0f} %"
        assert decision.missing[0].startswith(
            f"{share} of the time is ranks waiting for each other"
        )


TRANSFER = 30_000


def loops():
    """Two ranks of one run under a profiler that slows the host of one of them.

    Without it, both have the first loop with a transfer of 3 %. Rank 1 launches late, so rank 0
    waits in the collective for as long as its step would otherwise be shorter.
    """
    base = Loop(
        steps=10,
        forward_ns=300_000,
        backward_ns=500_000,
        optimizer_ns=80_000,
        comm_ns=TRANSFER,
        world_size=2,
    )
    slow = {"launch_gap_ns": 60_000, "process": Process(2_000, rank=1)}
    late = Loop(**{**vars(base), **slow})
    more = late.expected().window_ns - base.expected().window_ns
    early = {"comm_ns": TRANSFER + more, "process": Process(1_000, rank=0)}
    return Loop(**{**vars(base), **early}), late, base.expected().window_ns


def test_the_pair_is_what_it_claims_to_be():
    early, late, alone = loops()
    window = early.expected().window_ns
    assert late.expected().window_ns == window
    assert pytest.approx(0.03, abs=0.003) == TRANSFER / alone
    assert 0.35 <= early.expected().partition_ns["communication"] / window <= 0.45


def test_a_profiler_that_slows_one_rank_makes_no_run_communication_bound():
    early, late, _ = loops()
    report = analyze(early.scenario(), late.scenario(), profiled={"operators"})
    assert (report.run.straggler_rank, report.run.straggler_cause) == (1, "overhead")
    assert report.run.transfer_ns == TRANSFER
    assert report.verdict.bound == "overhead"
    assert report.verdict.shares["communication"] < 0.05
    assert report.verdict.confidence <= 0.3


def test_with_the_unprofiled_step_such_a_run_is_what_it_is_without():
    early, late, alone = loops()
    report = analyze(
        early.scenario(),
        late.scenario(),
        profiled={"operators"},
        unprofiled_step_ms=alone / 1e6,
    )
    assert report.verdict.bound == "compute"
    assert report.verdict.shares["communication"] == pytest.approx(TRANSFER / alone, abs=1e-4)


@pytest.mark.parametrize("rank", [0, 1])
def test_alone_neither_rank_is_called_communication_bound_with_the_unprofiled_step(rank):
    early, late, alone = loops()
    report = analyze(
        early.scenario(),
        late.scenario(),
        profiled={"operators"},
        rank=rank,
        unprofiled_step_ms=alone / 1e6,
    )
    assert report.verdict.bound == "compute"


@pytest.mark.parametrize("unprofiled_ms", [None, 0.0065])
def test_a_profiler_that_slows_the_ranks_by_turns_makes_no_run_communication_bound(unprofiled_ms):
    report = analyze(turns(0), turns(1), profiled={"operators"}, unprofiled_step_ms=unprofiled_ms)
    assert report.run.straggler_rank is None
    assert report.run.skew_causes["overhead"] == 1
    assert report.verdict.bound == "overhead"
    assert report.verdict.shares["communication"] <= 0.1 * 10_000 / 6_500 + 1e-6

"""Several ranks: what of a collective is transfer, who waits, for whom, and why.

The ranks are those of `tests/matched_ranks.py`, times are in ns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from msgspec import UNSET

import traceprobe
from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Message, Process, Script, merge
from tests.matched_ranks import EARLY, LATE, PITCH, STEPS, scenario_of_rank, waits_between
from traceprobe.errors import UsageError
from traceprobe.render.document import Text
from traceprobe.render.pages import report_summary


def analyze(*scenarios, **options):
    traces = [memory.trace(scenario) for scenario in scenarios]
    return traceprobe.analyze(traces, traceprobe.Options(**options))


def test_transfer_is_the_shortest_duration_among_the_ranks_and_the_rest_is_waiting():
    found = waits_between(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE))
    assert (found.count, found.steps) == (5, 5)
    assert found.transfer_ns == 5 * 1_000
    assert found.wait_ns == [5 * 2_000, 0]


def test_clocks_are_never_compared():
    found = waits_between(
        scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, clock=-(10**15) - 7)
    )
    assert (found.transfer_ns, found.wait_ns) == (5_000, [10_000, 0])


def test_a_rank_waits_from_its_arrival_on_and_computation_hides_it():
    busy = scenario_of_rank(0, *EARLY, compute=(1_000, 2_500))
    found = waits_between(busy, scenario_of_rank(1, *LATE))
    assert [list(waits) for waits in found.exposed_wait] == [[1_500] * 5, [0] * 5]
    hidden_transfer = scenario_of_rank(0, *EARLY, compute=(4_000, 6_000))
    assert (
        list(waits_between(hidden_transfer, scenario_of_rank(1, *LATE)).exposed_wait[0])
        == [2_000] * 5
    )


def test_of_three_ranks_the_last_to_arrive_has_the_transfer_time():
    middle = ((3_000, 5_000),)
    found = waits_between(
        scenario_of_rank(0, *EARLY), scenario_of_rank(1, *middle), scenario_of_rank(2, *LATE)
    )
    assert (found.transfer_ns, found.wait_ns) == (5_000, [10_000, 5_000, 0])


def test_collectives_of_a_step_are_matched_in_the_order_of_their_launches():
    found = waits_between(
        scenario_of_rank(0, (2_000, 7_000), (2_400, 2_500)),
        scenario_of_rank(1, (6_500, 7_000), (2_300, 2_500)),
    )
    assert found.count == 10
    assert found.transfer_ns == 5 * (500 + 100)
    assert found.wait_ns == [5 * 4_400, 5 * 100]


def test_of_collectives_that_are_under_way_at_once_time_counts_once():
    """As where one waits in a queue behind the other."""
    found = waits_between(
        scenario_of_rank(0, (2_000, 6_000), (2_100, 7_000)),
        scenario_of_rank(1, (5_000, 6_000), (5_100, 7_000)),
    )
    assert found.count == 10
    assert found.wait_ns == [5 * 3_000, 0]
    assert found.transfer_ns == 5 * 2_000


def test_steps_are_matched_by_their_names_where_captures_begin_at_different_steps():
    found = waits_between(
        scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, steps=range(2, 8))
    )
    assert (found.count, found.steps) == (3, 3)
    assert found.wait_ns == [3 * 2_000, 0]


def test_steps_in_which_the_ranks_launched_different_numbers_are_left_out():
    found = waits_between(
        scenario_of_rank(0, *EARLY, (8_000, 9_000)),
        scenario_of_rank(1, *LATE, (8_000, 9_000), without={1, 3}),
    )
    assert (found.count, found.steps) == (6, 3)
    assert found.transfer_ns == 3 * (1_000 + 1_000)


def test_a_step_that_one_rank_cannot_use_is_left_out():
    found = waits_between(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, cut={2}))
    assert (found.count, found.steps) == (4, 4)


@pytest.mark.parametrize(
    ("other", "waited"),
    [
        ({"cut": (1, 2)}, [2_000] * 5),
        ({"steps": range(2, STEPS)}, [2_000] * 5),
        ({"steps": range(100, 100 + STEPS)}, None),
    ],
    ids=["left out", "not recorded", "none in common"],
)
def test_a_step_that_a_rank_lacks_waits_for_it_beyond_what_its_collectives_transfer(other, waited):
    """What it lasts longer in such a step is no more transfer than in the others."""
    found = waits_between(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, **other))
    assert (None if found is None else list(found.exposed_wait[0])) == waited
    assert found is None or found.wait_ns[0] == found.steps * 2_000


def test_another_number_of_collectives_on_all_ranks_is_no_waiting():
    """A step without the usual small sum at first: what comes first there is another collective."""
    sums = (3_000, 3_100), (3_200, 8_000)
    odd = scenario_of_rank(0, *sums, without={2}), scenario_of_rank(1, *sums, without={2})
    found = waits_between(*odd)
    assert [list(waits) for waits in found.exposed_wait] == [[0] * 5] * 2


def test_steps_whose_names_recur_are_matched_in_their_order():
    steps = range(20)
    early, late = [(t, 5_000) for t in (2_000, 2_100, 2_200)], [(4_000, 5_000)] * 3

    def two_epochs(number, first, second):
        one = scenario_of_rank(number, *first, steps=steps)
        two = scenario_of_rank(number, *second, steps=steps, clock=len(steps) * PITCH)
        ops = (replace(op, correlation=k) for k, op in enumerate((*one.ops, *two.ops)))
        return replace(one, ops=tuple(ops), ranges=(*one.ranges, *two.ranges))

    found = waits_between(two_epochs(0, early, late), two_epochs(1, late, early))
    assert (found.count, found.transfer_ns) == (39 * 3, 39 * 1_000)  # three at once
    assert found.wait_ns == [20 * 2_000, 19 * 2_000]


@pytest.mark.parametrize(
    "scenarios",
    [
        [scenario_of_rank(0, *EARLY)],
        [scenario_of_rank(0, *EARLY), scenario_of_rank(1)],
        [scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, steps=range(40, 46))],
        [scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, (8_000, 9_000))],
    ],
    ids=["one rank", "a rank without collectives", "no common step", "never the same number"],
)
def test_without_collectives_in_common_nothing_is_matched(scenarios):
    assert waits_between(*scenarios) is None


def bare(number, *arrivals, first=0, clock=0, world=2):
    """A rank without step markers: collectives that begin at these times and end together.

    Args:
        arrivals: per collective, before its end. first: those that the capture came too late for.
    """
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=world)
    end = 0
    for i, arrival in enumerate(arrivals):
        end += 7_000 + 20 * (7_919 * i**3 % 1_009)  # uneven, so that only one shift fits
        if i >= first:
            # A kernel of each name, so that they are no steps either.
            kernel = (end - arrival - 500, end - arrival, (end - 6_000, end - 5_990))
            script.op("kernel", *kernel, name="kernel_" + chr(97 + i))
            call = (end - arrival - 50, end - arrival - 40)
            script.op("comm", end - arrival, end, call, stream=COMM_STREAM)
    return script.build().shifted(clock)


def test_without_a_step_marker_the_capture_is_one_step():
    found = waits_between(bare(0, *[3_000] * 8), bare(1, *[1_000] * 8, clock=10**12))
    assert (found.count, found.steps) == (8, 1)
    assert (found.transfer_ns, found.wait_ns) == (8_000, [16_000, 0])


def test_captures_without_steps_are_aligned_by_the_ends_of_their_collectives():
    late, early = bare(0, *[1_000] * 20, first=5, clock=10**12), bare(1, *[3_000] * 17)
    for ranks in ([late, early], [early, late]):
        report = analyze(*ranks)
        assert report.run.collectives_matched == 12
        assert report.run.transfer_ns == 12 * 1_000
        assert sorted(g.matched for r in report.ranks for g in r.summary.collectives) == [12, 12]


def test_captures_that_have_no_collective_in_common_match_none():
    other = bare(1, *[1_000] * 30, first=21)
    assert analyze(bare(0, *[1_000] * 20), other).run.transfer_ns is None


def test_the_run_names_transfer_skew_and_straggler_per_step():
    run = analyze(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE)).run
    assert (run.world_size, run.collectives_matched) == (2, 5)
    assert (run.transfer_ns, run.skew_ns) == (1_000, 1_000)  # 2 000 on one of two ranks
    assert run.straggler_rank == 1


@pytest.mark.parametrize("others", [1, 3, 7])
def test_what_the_others_wait_for_the_straggler_is_their_mean_without_its_own_zero(others):
    world = others + 1
    report = analyze(
        *[scenario_of_rank(n, *EARLY, world=world) for n in range(others)],
        scenario_of_rank(others, *LATE, world=world),
    )
    assert report.run.straggler_rank == others
    assert report.run.skew_ns == pytest.approx(2_000 * others / world, abs=1)
    assert report.run.straggler_wait_ns == 2_000
    assert f"the others wait for rank {others} (overhead): 2.00 µs of each 10.0 µs step" in said(
        report
    )


def test_waiting_for_a_rank_that_is_late_now_and_then_is_not_for_the_straggler():
    """Rank 0 is 500 ns late to a second collective, for which the straggler waits too."""
    report = analyze(
        scenario_of_rank(0, (2_000, 5_000), (6_500, 7_500)),
        scenario_of_rank(1, (4_000, 5_000), (6_000, 7_500)),
        scenario_of_rank(2, (2_000, 5_000), (6_000, 7_500)),
    )
    assert report.run.skew_ns == pytest.approx((2_000 + 500 + 2_500) / 3, abs=1)
    assert (report.run.straggler_rank, report.run.straggler_wait_ns) == (1, 2_000)


def test_where_ranks_take_turns_nobody_is_waited_for():
    report = analyze(
        scenario_of_rank(0, (2_000, 5_000), (8_000, 9_000)),
        scenario_of_rank(1, (4_000, 5_000), (6_000, 9_000)),
    )
    assert (report.run.straggler_rank, report.run.straggler_wait_ns) == (None, UNSET)


def said(report):
    """The sentences of the summary in a terminal."""
    blocks = chain.from_iterable(report_summary.terminal(report))
    return [s for block in blocks if isinstance(block, Text) for s in block.sentences]


@pytest.mark.parametrize(
    ("late", "cause"),
    [
        ({"compute": (1_000, 3_900)}, "compute"),
        ({"late": True, "data_wait": (2_000, 3_900)}, "io"),
        ({"late": True}, "overhead"),
    ],
)
def test_the_straggler_has_more_of_something_than_the_others(late, cause):
    run = analyze(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE, **late)).run
    assert (run.straggler_rank, run.straggler_cause) == (1, cause)


WAIT = 12_000


def first_waits(number, *, late, named="data_loading"):
    """A rank whose step 0 begins long before the others; a late one has its first op at the end."""
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=2)
    for k in range(STEPS):
        at = k * PITCH
        begin = at - WAIT if k == 0 else at
        script.range(f"step {k}", begin, at + PITCH)
        if k == 0 and late and named:
            script.range(named, begin, at)
        first = at if late else begin
        script.op("kernel", first + 600, first + 700, (first + 60, first + 70))
        script.op("comm", first + 1_000, at + 2_000, (first + 80, first + 90), stream=COMM_STREAM)
        script.op("kernel", at + 2_500, at + 9_000, (at + 100, at + 110))
    return script.build()


def test_what_a_rank_waits_for_before_its_first_operation_makes_it_late():
    report = analyze(first_waits(0, late=True), first_waits(1, late=False))
    assert (report.run.straggler_rank, report.run.straggler_cause) == (0, "io")
    assert report.run.skew_causes["io"] == pytest.approx(1, abs=0.02)
    others = report.ranks[1].summary.step_ms.mean
    assert others > report.ranks[0].summary.step_ms.mean
    waited = report.run.straggler_wait_ns / 1e6
    assert waited < others
    told = " ".join(report_summary._straggler(report))
    assert f"of each {others * 1e3:.1f} µs step" in told


def test_without_a_range_of_a_loader_nobody_knows_why_it_comes_late():
    report = analyze(first_waits(0, late=True, named=None), first_waits(1, late=False))
    assert (report.run.straggler_rank, report.run.straggler_cause) == (0, "other")


def test_a_few_ranks_that_come_last_by_turns_are_named_together():
    """Of six ranks, the second and the fifth are late in turns."""
    few = ((4_000, 5_000), (6_000, 9_000)), ((2_000, 5_000), (8_000, 9_000))
    none = ((2_000, 5_000), (6_000, 9_000))
    ranks = [scenario_of_rank(n, *{1: few[0], 4: few[1]}.get(n, none), world=6) for n in range(6)]
    report = analyze(*ranks)
    assert (report.run.straggler_rank, report.run.late_ranks) == (None, [1, 4])
    assert "the other ranks wait for ranks 1 and 4" in report.verdict.reasons


@pytest.mark.parametrize(("arrival", "straggler"), [(4_780, None), (4_820, 1)])
def test_a_skew_of_one_percent_of_the_step_names_no_straggler(arrival, straggler):
    run = analyze(scenario_of_rank(0, (4_600, 5_000)), scenario_of_rank(1, (arrival, 5_000))).run
    assert run.skew_ns == (arrival - 4_600) / 2
    assert run.straggler_rank == straggler
    assert (run.straggler_cause is None) == (straggler is None)


def test_each_rank_reports_its_exposed_waiting():
    report = analyze(
        scenario_of_rank(0, *EARLY, compute=(1_000, 2_500)), scenario_of_rank(1, *LATE)
    )
    exposed = [r.summary.communication.skew_exposed_ns for r in report.ranks]
    assert exposed == [5 * 1_500, 0]


def test_two_processes_in_one_file_are_two_ranks():
    both = merge(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE))
    report = analyze(both)
    assert [(r.rank, r.pid) for r in report.ranks] == [(0, 1_000), (1, 2_000)]
    assert report.run.straggler_rank == 1


def test_one_rank_of_a_larger_world_says_that_the_others_are_missing():
    run = analyze(scenario_of_rank(3, *EARLY, world=8)).run
    assert (run.world_size, run.collectives_matched) == (8, 0)
    assert (run.transfer_ns, run.skew_ns, run.straggler_rank) == (None, None, None)


def test_a_run_of_one_rank_is_no_run():
    assert analyze(scenario_of_rank(0, world=None)).run is None


def test_one_rank_is_chosen_by_number():
    report = analyze(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE), rank=1)
    assert [r.rank for r in report.ranks] == [1]


def test_a_rank_that_is_not_there_is_an_error():
    with pytest.raises(UsageError, match=r"--rank 7: no such rank; the inputs hold 0, 1"):
        analyze(scenario_of_rank(0, *EARLY), scenario_of_rank(1, *LATE), rank=7)


def test_two_inputs_that_claim_the_same_rank_are_an_error():
    with pytest.raises(UsageError, match="both say that they are rank 1"):
        analyze(scenario_of_rank(1, *EARLY), scenario_of_rank(1, *LATE))


def test_processes_without_a_rank_take_the_numbers_that_are_left():
    def unnumbered(pid):
        return Script(Process(pid)).op("kernel", 10, 20, (0, 5)).build()

    numbered = scenario_of_rank(1, *LATE, world=None)
    report = analyze(unnumbered(5), numbered, merge(unnumbered(7), unnumbered(6)))
    assert [(r.rank, r.pid) for r in report.ranks] == [(0, 5), (1, 2_000), (2, 6), (3, 7)]


def test_no_input_is_an_error():
    with pytest.raises(UsageError, match="no input"):
        analyze()


def talking(number, *collectives, world=4):
    """A rank whose every step has these: (arrival, end, process group or None, name)."""
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=world)
    for k in range(STEPS):
        at = k * PITCH
        script.range(f"step {k}", at, at + PITCH)
        script.op("kernel", at + 600, at + 700, (at + 60, at + 70))
        for i, (begin, end, members, name) in enumerate(collectives):
            message = members and Message(name, ranks=members, group=str(members))
            script.op(
                *("comm", at + begin, at + end, (at + 200 + 10 * i, at + 205 + 10 * i)),
                stream=COMM_STREAM + i,
                message=message,
                name=f"nccl_{name}",
            )
    return script.build()


def test_in_a_mesh_each_rank_is_matched_in_its_own_groups():
    """Rows reduce first, then columns; the last to arrive needs 1 000 ns."""
    rows = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    columns = {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    report = analyze(
        *(
            talking(
                n,
                (4_000 - 500 * (n in (1, 3)), 5_000, rows[n], "allreduce"),
                (7_000 - 100 * n, 8_000, columns[n], "allreduce"),
            )
            for n in range(4)
        )
    )
    found = [r.summary.collectives[0] for r in report.ranks]
    assert [g.matched for g in found] == [2 * 5] * 4
    assert [g.transfer_ns for g in found] == [5 * (1_000 + n) for n in (1_000, 1_100) * 2]
    assert [g.skew_ns for g in found] == [5 * n for n in (0, 500, 200, 500 + 200)]
    # No group has all ranks, so the run has what the groups say of theirs.
    assert report.run.collectives_matched == 4 * 5
    assert report.run.transfer_ns == (2_000 + 2_100) / 2
    assert report.run.skew_ns == (0 + 500 + 200 + 700) / 4


def test_operations_that_alternate_differently_are_told_apart_without_groups():
    one = ((2_000, 5_000, None, "AllReduce"), (8_700, 9_000, None, "AllGather"))
    other = ((8_500, 9_000, None, "AllGather"), (4_000, 5_000, None, "AllReduce"))
    found = waits_between(talking(0, *one), talking(1, *other))
    assert (found.count, found.transfer_ns) == (10, 5 * (1_000 + 300))


def test_messages_between_two_of_many_ranks_leave_the_collectives_matched():
    """A pipeline: its ends send or receive once, its middle does both."""
    pipe = (0, 1, 2)
    once = ((3_000, 4_000, pipe, "send"),)
    ends = (2_000, 5_000, pipe, "allreduce")
    found = waits_between(
        talking(0, *once, ends),
        talking(1, *once, *once, (4_000, 5_000, pipe, "allreduce")),
        talking(2, *once, ends),
    )
    assert (found.count, found.transfer_ns) == (5, 5_000)
    assert found.wait_ns == [10_000, 0, 10_000]


def test_copies_between_devices_are_no_collectives():
    def copying(number, *collectives):
        script, at = scenario_of_rank(number, *collectives), 2 * PITCH
        copies = Script(script.processes[0])
        for k in range(number + 1):
            copies.op("p2p", at + 100 + k, at + 200 + k, (at + 50, at + 51), correlation=900 + k)
        return replace(script, ops=(*script.ops, *copies.build().ops))

    found = waits_between(copying(0, *EARLY), copying(1, *LATE))
    assert (found.count, found.steps, found.wait_ns) == (5, 5, [10_000, 0])

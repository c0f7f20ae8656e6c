"""Several inputs are the ranks of one run, or they are refused with what belongs together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

import traceprobe
from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Process, Script
from tests.matched_ranks import EARLY, LATE, scenario_of_rank
from traceprobe.errors import UsageError

DAY = 86_400 * 10**9
EPOCH = 1_700_000_000 * 10**9


def trace(scenario, name="rank.json", form="kineto"):
    made = memory.trace(scenario)
    return changed(made, origin=changed(made.origin, name=name, format=form))


def on(scenario, gpu):
    (process,) = scenario.processes
    return replace(scenario, processes=(replace(process, devices=(gpu,)),))


def codes(report):
    return [warning.code for warning in report.quality.warnings]


def refused(*traces):
    with pytest.raises(UsageError) as caught:
        traceprobe.analyze(list(traces))
    return str(caught.value)


def alone(pid, number=None, world=None, at=EPOCH):
    """A program without collectives."""
    script = Script(Process(pid, rank=number), world_size=world)
    for k in range(6):
        script.range(f"step {k}", at + k * 10_000, at + k * 10_000 + 9_000)
        script.op("kernel", at + k * 10_000 + 100, at + k * 10_000 + 8_000, (at + k * 10_000, at))
    return script.build()


def test_ranks_of_one_run_have_nothing_to_be_warned_of():
    report = traceprobe.analyze(
        [trace(scenario_of_rank(0, *EARLY)), trace(scenario_of_rank(1, *LATE))]
    )
    assert codes(report) == []
    assert report.run.straggler_rank == 1


def test_another_number_of_ranks_is_another_run():
    four = [trace(scenario_of_rank(n, *EARLY, world=4), f"a{n}.json") for n in range(4)]
    other = trace(scenario_of_rank(0, *EARLY, clock=1, world=8), "b.json")
    message = refused(*four, other)
    assert message.startswith(
        "the inputs are of two runs: a0.json, a1.json, a2.json and 1 more with ranks 0–3; b.json "
        "with rank 0 ("
    )
    assert "a0.json is of 4 ranks, b.json of 8" in message


def test_another_kind_of_device_is_another_run():
    message = refused(
        trace(scenario_of_rank(0, *EARLY), "a.json"),
        trace(on(scenario_of_rank(1, *LATE), "Tesla T4"), "b.json"),
    )
    assert "a.json is of NVIDIA H200 (GPU), b.json of Tesla T4 (GPU)" in message


def test_a_rank_twice_is_another_run():
    message = refused(
        trace(scenario_of_rank(0, *EARLY), "a.json"),
        trace(scenario_of_rank(1, *LATE), "b.json"),
        trace(scenario_of_rank(1, *LATE, clock=5), "c.json"),
    )
    assert "a.json, b.json with ranks 0–1; c.json with rank 1" in message
    assert "b.json and c.json both say that they are rank 1" in message


def test_two_readings_of_one_run_are_not_two_ranks():
    message = refused(
        trace(scenario_of_rank(0, *EARLY), "a.json"),
        trace(scenario_of_rank(1, *LATE), "a.sqlite", form="nsys"),
    )
    assert "a.json and a.sqlite are of different profilers" in message


def test_programs_that_have_nothing_to_do_with_each_other_are_refused():
    message = refused(trace(alone(1), "unet.json"), trace(alone(2, at=EPOCH + DAY), "gpt.json"))
    assert "two runs: unet.json; gpt.json" in message
    assert "nothing tells that unet.json and gpt.json are one run" in message


def test_what_is_left_of_an_earlier_recording_is_refused():
    message = refused(
        trace(alone(1), "rank0.json"), trace(alone(2, 1, 2, EPOCH - DAY), "rank1.json")
    )
    assert "rank1.json with rank 1" in message


@pytest.mark.parametrize("form", ["kineto", "nsys"])
def test_programs_without_collectives_are_one_run_if_their_names_say_so(form):
    traces = [trace(alone(n + 1), f"rank{n}.json", form) for n in range(2)]
    assert [r.rank for r in traceprobe.analyze(traces).ranks] == [0, 1]


def test_a_copy_of_a_file_is_left_out():
    report = traceprobe.analyze(
        [
            trace(scenario_of_rank(0, *EARLY), "r0.json"),
            trace(scenario_of_rank(0, *EARLY), "r1.json"),
        ]
    )
    assert [r.rank for r in report.ranks] == [0]
    assert codes(report) == ["identical-inputs"]
    assert "r1.json" in report.quality.warnings[0].message


def test_a_missing_rank_is_said_and_nobody_is_called_the_straggler():
    given = [scenario_of_rank(n, *(LATE if n == 3 else EARLY), world=4) for n in (0, 1, 3)]
    report = traceprobe.analyze([trace(s) for s in given])
    whole = traceprobe.analyze([trace(s) for s in [*given, scenario_of_rank(2, *EARLY, world=4)]])
    assert "1 of 4 ranks are missing (2)" in report.quality.warnings[0].message
    assert (report.run.straggler_rank, whole.run.straggler_rank) == (None, 3)
    assert not any("wait for rank" in reason for reason in report.verdict.reasons)
    assert codes(whole) == []


def test_a_missing_rank_costs_a_verdict_of_communication_its_confidence():
    long = ((2_000, 8_000),)
    given = [scenario_of_rank(n, *long, world=3) for n in (0, 1)]
    partly = traceprobe.analyze([trace(s) for s in given]).verdict
    fully = traceprobe.analyze(
        [trace(s) for s in [*given, scenario_of_rank(2, *long, world=3)]]
    ).verdict
    assert partly.bound == fully.bound == "communication"
    assert partly.confidence == pytest.approx(fully.confidence - 0.2, abs=0.01)


def test_clocks_that_disagree_are_said_where_the_collectives_meet():
    report = traceprobe.analyze(
        [
            trace(scenario_of_rank(0, *EARLY, clock=EPOCH)),
            trace(scenario_of_rank(1, *LATE, clock=EPOCH + DAY)),
        ]
    )
    assert codes(report) == ["clocks-disjoint"]
    assert report.run.collectives_matched == 5
    assert report.run.straggler_rank is None
    assert any(term.name == "single-rank" for term in report.verdict.confidence_terms)


def test_clocks_that_disagree_and_collectives_that_do_not_meet_are_two_runs():
    other = scenario_of_rank(1, *LATE, (8_000, 9_000), clock=EPOCH + DAY)
    message = refused(
        trace(scenario_of_rank(0, *EARLY, clock=EPOCH), "a.json"), trace(other, "b.json")
    )
    assert "nothing tells that a.json and b.json are one run" in message


def test_collectives_that_do_not_meet_at_one_time_are_said():
    report = traceprobe.analyze(
        [trace(scenario_of_rank(0, *EARLY)), trace(scenario_of_rank(1, *LATE, (8_000, 9_000)))]
    )
    assert codes(report) == ["collectives-unmatched"]
    assert report.run.transfer_ns is None


def test_several_gpus_of_one_process_are_one_program_with_a_rank_each():
    script = Script(Process(1_000, devices=("NVIDIA H200",) * 2))
    for k in range(8):
        at = k * 10_000
        script.range(f"step {k}", at, at + 9_900)
        for n in (0, 1):
            call = at + 100 * n
            script.op("kernel", at + 600, at + 5_000, (call + 60, call + 68), device=n)
            script.op(
                *("comm", at + 5_000 + 1_000 * n, at + 8_000, (call + 80, call + 85)),
                device=n,
                stream=COMM_STREAM,
            )
    report = traceprobe.analyze(memory.trace(script.build()))
    assert [(r.rank, r.pid, r.device.index) for r in report.ranks] == [(0, 1_000, 0), (1, 1_000, 1)]
    assert (report.run.world_size, report.run.collectives_matched) == (2, 7)

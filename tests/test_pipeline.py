"""Pipelines by their schedules: what is bubble, what is waiting for a slower stage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests.builders import memory
from tests.builders.pipeline import Pipeline
from traceprobe.errors import ImpossibleChange
from traceprobe.replay.predict import predict, prepare
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.pipeline import bubble_ms, schedule


def analyze(plan, *chosen):
    ranks = plan.ranks()
    return traceprobe.analyze([memory.trace(ranks[n]) for n in chosen or range(plan.stages)])


def finding(report, id="pipeline-bubble"):
    return next(f for f in report.findings if f.id == id)


def ideal(plan):
    return (plan.stages - 1) / (plan.micro_batches + plan.stages - 1)


@settings(max_examples=12, deadline=None)
@given(
    stages=st.integers(2, 5),
    micro_batches=st.integers(1, 6),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    named=st.booleans(),
)
def test_equal_stages_wait_as_long_as_their_schedule_has_to_let_them(
    stages, micro_batches, schedule, named
):
    plan = Pipeline(stages, micro_batches, schedule=schedule, named=named)
    report = analyze(plan)
    found = bubble_ms(report.ranks)
    step = sum(r.summary.step_ms.mean for r in report.ranks) / stages
    turn = (plan.forward_ns + plan.backward_ns) / 1e6
    # Messages lengthen a step, so that the stages cannot wait exactly as long as without any.
    messages = 4 * (stages + micro_batches) * plan.transfer_ns / 1e6
    if micro_batches > 1 or named or stages == 2:
        assert found == pytest.approx((stages - 1) * turn, abs=messages)
        assert found / step == pytest.approx(ideal(plan), abs=messages / step)
    assert report.verdict.shares["overhead"] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_bubble_is_communication_and_named_in_the_headline(stages, schedule):
    report = analyze(Pipeline(stages, 3, schedule=schedule))
    assert report.verdict.bound == "communication"
    assert "pipeline bubble" in report.verdict.headline
    found = finding(report)
    assert found.status == "fail"
    expected = (stages - 1) / (3 + stages - 1)
    assert f"{100 * expected:.1f} %, with {stages} stages and 3 micro-batches" in found.evidence[1]
    assert finding(report, "communication-exposed").status == "pass"


def test_many_micro_batches_leave_no_bubble_worth_a_word():
    report = analyze(Pipeline(2, 40))
    assert report.verdict.bound == "compute"
    assert finding(report).status == "pass"
    assert finding(report).saving_ms_per_step is None


@pytest.mark.parametrize(("micro_batches", "status"), [(7, "warn"), (8, "pass")])
def test_four_micro_batches_a_stage_are_as_many_as_help(micro_batches, status):
    found = finding(analyze(Pipeline(2, micro_batches)))
    assert found.status == status
    assert (found.saving_ms_per_step is None) is (status == "pass")


def test_a_rank_with_more_of_the_model_is_told_to_give_layers_away():
    found = finding(analyze(Pipeline(2, 8, slower={1: 3})), "communication-skew")
    assert any(said.startswith("its stage of the pipeline computes") for said in found.evidence)
    assert "move layers" in found.advice


@pytest.mark.parametrize("stages", [2, 3])
def test_waiting_for_a_slower_stage_is_skew_and_the_slowest_is_named(stages):
    report = analyze(Pipeline(stages, 8, slower={1: 3}))
    assert report.run.straggler_rank == 1
    assert report.run.straggler_cause == "compute"
    assert report.verdict.bound == "compute"
    own = report.ranks[1].summary
    assert bubble_ms(report.ranks) == own.communication.stage_wait_ns / own.steps / 1e6


def test_one_stage_alone_says_that_it_cannot_tell_bubble_from_imbalance():
    plan = Pipeline(2, 4)
    alone = analyze(plan, 0)
    both = analyze(plan)
    assert alone.verdict.bound == "communication"
    assert "pipeline bubble" in alone.verdict.headline
    assert finding(alone).saving_ms_per_step == pytest.approx(
        finding(both).saving_ms_per_step, rel=0.01
    )
    assert any("one rank alone cannot tell" in line for line in finding(alone).evidence)
    assert alone.verdict.confidence < both.verdict.confidence


def test_stages_are_counted_only_where_all_ranks_are_there():
    report = analyze(Pipeline(4, 4), 0, 1, 2)
    assert schedule(report.ranks, report.run.world_size) is None


@pytest.mark.parametrize(
    ("messages", "plan"), [(3, (2, 2)), (9, (2, 8)), (16, (2, 8)), (1, None)], ids=str
)
def test_messages_both_ways_in_one_call_are_counted_once(messages, plan):
    """So PyTorch sends those of 1F1B: each stage has one more than it has micro-batches."""
    report = analyze(Pipeline(2, 8))
    ranks = []
    for rank in report.ranks:
        groups = [g for g in rank.summary.collectives if g.operation == "send_recv"][:1]
        sent = [replace(g, count=messages * rank.summary.steps) for g in groups]
        ranks.append(replace(rank, summary=replace(rank.summary, collectives=sent)))
    found = schedule(ranks, 2)
    assert (None if found is None else (found.stages, found.micro_batches)) == plan


def test_without_messages_there_is_no_pipeline():
    report = analyze(Pipeline(1, 4))
    assert finding(report).status == "not-applicable"


LONG = {
    "forward_ns": 1_000_000,
    "backward_ns": 2_000_000,
    "transfer_ns": 1_000,
    "ahead": True,
    "named": True,
}


def step_ms(report):
    return sum(r.summary.step_ms.mean for r in report.ranks) / len(report.ranks)


def scaled(factor):
    passes = {name: round(factor * LONG[name]) for name in ("forward_ns", "backward_ns")}
    return {**LONG, **passes}


@pytest.mark.parametrize(
    ("stages", "schedule"), [(2, "gpipe"), (3, "gpipe"), (4, "gpipe"), (2, "1f1b")]
)
def test_stages_made_equally_long_are_predicted_to_wait_as_equal_ones_do(stages, schedule):
    uneven = analyze(Pipeline(stages, 8, schedule=schedule, slower={1: 3}, **LONG))
    found = finding(uneven, "communication-skew")
    assert "work shared evenly by the ranks" in found.evidence[-1]
    # One stage of three times the length: the mean of all.
    mean = (stages - 1 + 3) / stages
    even = analyze(Pipeline(stages, 8, schedule=schedule, **scaled(mean)))
    predicted = step_ms(uneven) - found.predicted.ms
    assert predicted == pytest.approx(step_ms(even), rel=0.01)
    assert step_ms(even) < 0.9 * step_ms(uneven)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 3), (4, 4)])
def test_with_twice_as_many_micro_batches_stages_are_predicted_to_wait_half_as_long(
    stages, micro_batches, schedule
):
    few = analyze(Pipeline(stages, micro_batches, schedule=schedule, **LONG))
    found = finding(few)
    assert "twice as many micro-batches" in found.evidence[-1]
    more = analyze(Pipeline(stages, 2 * micro_batches, schedule=schedule, **scaled(0.5)))
    predicted = step_ms(few) - found.predicted.ms
    assert predicted == pytest.approx(step_ms(more), rel=0.01)
    assert step_ms(more) < 0.9 * step_ms(few)


def test_only_a_pipeline_has_micro_batches():
    run = prepare(analyze(Pipeline(2, 2, **LONG)))
    assert predict(run, Changes(micro_batches=4.0)).predicted < run.now
    alone = prepare(analyze(Pipeline(2, 2, **LONG), 0))
    with pytest.raises(ImpossibleChange, match="no pipeline"):
        predict(alone, Changes(micro_batches=4.0))


def test_what_is_left_out_of_a_pipeline_is_left_out_with_more_micro_batches_too():
    run = prepare(analyze(Pipeline(2, 2, slower={1: 3}, **LONG)))
    behind = Changes(removed=frozenset({"straggler"}))
    more = Changes(removed=frozenset({"straggler"}), micro_batches=2.0)
    assert predict(run, more).predicted <= predict(run, behind).predicted


def test_both_changes_of_a_pipeline_together():
    plan = Pipeline(2, 2, slower={1: 3}, **LONG)
    run = prepare(analyze(plan))
    both = predict(run, Changes(removed=frozenset({"skew"}), micro_batches=2.0)).predicted
    assert both == pytest.approx(step_ms(analyze(Pipeline(2, 4, **scaled(1.0)))), rel=0.01)

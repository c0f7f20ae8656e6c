"""Blocks hold whole periods of the loop, and last long enough on a GPU."""

from __future__ import annotations

import pytest

from traceprobe.capture.recording.block_lengths import MOST_AHEAD, BlockLengths
from traceprobe.capture.recording.recording_plan import RecordingPlan

PLAN = RecordingPlan(calibrate=20, active=8, settle=2)


def test_as_planned_where_nothing_speaks_against_it():
    lengths = BlockLengths(PLAN)
    assert (lengths.lead_in(10), lengths.unprofiled(10), lengths.active) == (2, 10, 8)
    assert lengths.steps == 2 + 10 + 2 + 8 + 1 + 2 + 10
    assert PLAN.steps == PLAN.warmup + lengths.steps


@pytest.mark.parametrize(
    ("period", "unprofiled", "active"), [(2, 10, 8), (3, 12, 9), (7, 14, 14), (40, 40, 40)]
)
def test_whole_periods(period, unprofiled, active):
    lengths = BlockLengths(PLAN, period)
    assert (lengths.unprofiled(10), lengths.active, lengths.wanting) == (unprofiled, active, 0)


def test_a_period_that_no_block_can_hold_says_what_it_needs():
    lengths = BlockLengths(PLAN, 60)
    assert (lengths.unprofiled(10), lengths.active) == (10, 8)
    assert lengths.wanting == 120


@pytest.mark.parametrize(
    ("pace_ms", "lead_in", "unprofiled"),
    [(1.0, 50, 50), (20.0, 25, 25), (100.0, 5, 10), (3000.0, 2, 10)],
)
def test_blocks_on_a_gpu_last_half_a_second_where_that_is_affordable(pace_ms, lead_in, unprofiled):
    lengths = BlockLengths(PLAN, 1, pace_ms)
    assert (lengths.lead_in(10), lengths.unprofiled(10)) == (lead_in, unprofiled)


@pytest.mark.parametrize(("ahead", "ready"), [(0, 0), (16, 16), (500, MOST_AHEAD)])
def test_steps_use_up_what_a_loader_has_ready(ahead, ready):
    lengths = BlockLengths(PLAN, ahead=ahead)
    assert (lengths.ready, lengths.settle) == (ready, ready + 2)
    assert lengths.lead_in(10) == max(ready, 2)
    assert lengths.lead_in(10, made=10) == max(ready - 10, 2)
    assert lengths.steps == BlockLengths(PLAN).steps + ready + sum(
        lengths.lead_in(10, made) - 2 for made in (0, PLAN.warmup)
    )


def test_both_at_once():
    assert BlockLengths(PLAN, 3, 1.0).unprofiled(10) == 48

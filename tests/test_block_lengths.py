"""Blocks hold whole periods of the loop, and last long enough on a GPU."""

from __future__ import annotations

import pytest

from traceprobe.capture.block_lengths import BlockLengths
from traceprobe.capture.recording_plan import RecordingPlan

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


def test_both_at_once():
    assert BlockLengths(PLAN, 3, 1.0).unprofiled(10) == 48

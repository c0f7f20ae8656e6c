"""How long steps wait for the loader that feeds them, and for others, as that of an evaluation."""

from __future__ import annotations

from msgspec.structs import replace

from tests import records
from tests.records import step
from traceprobe.capture.recording.calibration_facts import calibration
from traceprobe.capture.recording.timed_block import TimedBlock
from traceprobe.pipeline.run_ranks import RunRanks
from traceprobe.records.rank import LongIterations


def block(waits, others):
    timed = TimedBlock(profiled=False, waits=waits, other_waits_ns=others)
    timed.marks = [10_000_000 * n for n in range(len(waits) + 1)]
    return timed


def test_the_sidecar_has_both():
    profiled = TimedBlock(profiled=True, marks=[0, 1])
    blocks = [block([1_000_000] * 4, 6_000_000), profiled, block([1_000_000] * 2, 0)]
    facts = calibration(blocks, slowed=False)
    assert facts["unprofiled_data_wait_ms"] == 1.0
    assert facts["unprofiled_other_wait_ms"] == 1.0
    alone = calibration([block([1_000_000], 0), profiled], slowed=False)
    assert "unprofiled_other_wait_ms" not in alone


def test_waits_for_other_loaders_are_those_of_long_iterations_where_there_are_any():
    rank = records.rank(step())
    long = LongIterations(
        indices=[4], every=None, once=False, extra_ns=1, extra_partition_ns={}, regular_ms=1.0
    )
    for every, regular_ms in ((replace(rank, long=long), 2.0), (rank, 5.0)):
        ranks = RunRanks([every], [rank], [], [], [None], None, {})
        timed = ranks.with_timed_waits({0: 2e6}, {0: 3e6})
        assert timed.every[0].timed_wait_ms == 5.0
        assert timed.regular[0].timed_wait_ms == regular_ms

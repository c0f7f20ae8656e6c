"""Blocks of steps without the profiler that have several paces, and what findings say then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence
from tests.records import step
from traceprobe.findings.host_overhead import host_overhead
from traceprobe.findings.recorded_pace import in_doubt, several_paces
from traceprobe.findings.unexplained_idle import unexplained_idle
from traceprobe.model.sidecar import Block


def blocks(*steps_ms, waits=(0.0, 0.0)):
    """Blocks around one with the profiler."""
    first, last = (
        Block(profiled=False, steps=10, step_ms=ms, data_wait_ms=wait)
        for ms, wait in zip(steps_ms, waits, strict=True)
    )
    return [first, Block(profiled=True, steps=10, step_ms=40.0), last]


@pytest.mark.parametrize(
    ("read", "share"),
    [
        (blocks(10.0, 18.0), 4 / 14),
        (blocks(18.0, 10.0), 4 / 14),
        (blocks(10.0, 10.4), 0.0),
        (blocks(10.0, 18.0, waits=(0.0, 8.0)), 0.0),
        (blocks(10.0, 18.0)[:2], 0.0),
        ([], 0.0),
    ],
    ids=["slower", "faster", "one pace", "a loader's", "one block", "nothing"],
)
def test_the_share_that_the_fastest_block_does_not_have(read, share):
    assert in_doubt([read]) == pytest.approx(share)
    assert bool(several_paces(share)) is bool(share)


def test_ranks_step_together():
    assert in_doubt([blocks(10.0, 18.0), blocks(10.0, 10.0)]) == 0.0
    assert in_doubt([]) == 0.0


@pytest.mark.parametrize(
    ("rule", "idle"), [(host_overhead, "idle_host"), (unexplained_idle, "idle_unexplained")]
)
@pytest.mark.parametrize(
    ("last", "status"), [(10.0, "warn"), (11.0, "warn"), (14.0, "pass")], ids=["one", "near", "two"]
)
def test_what_the_machine_may_have_done_is_not_asked_about(rule, idle, last, status):
    late = evidence(records.rank(step(**{idle: 100})))
    found = rule(replace(late, blocks={0: blocks(10.0, last)}))
    assert found.status == status
    assert any("several paces" in said for said in found.evidence) is (last > 10.5)

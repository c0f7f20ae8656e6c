"""One process that launches for several GPUs from threads: `nn.DataParallel`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence
from traceprobe import findings
from traceprobe.records.operator_calls import OperatorPace

BROADCAST = "autograd::engine::evaluate_function: BroadcastBackward"


def found(gpus=2, operator=BROADCAST, idle=600):
    """All findings on such GPUs, by id; of 1,000 ms a step the host is late by so many."""
    parts = {"forward": 1_000 - idle, "idle_host": idle}
    ranks = [records.rank(parts, number) for number in range(gpus)]
    called = {operator: OperatorPace(1.0, 9_000.0, 0.0, 0.0)}
    seen = replace(evidence(*ranks), called=lambda: called)
    return {each.id: each for each in findings.find_all(seen)}


@pytest.mark.parametrize(
    ("gpus", "operator", "idle", "status", "saving"),
    [
        (2, BROADCAST, 600, "fail", 600.0),
        (4, BROADCAST, 60, "warn", 60.0),
        (2, BROADCAST, 0, "pass", None),
        (1, BROADCAST, 600, "not-applicable", None),
        (2, "autograd::engine::evaluate_function: _BroadcastBackward", 600, "not-applicable", None),
    ],
)
def test_threads_that_launch_for_all_gpus_are_named(gpus, operator, idle, status, saving):
    finding = found(gpus, operator, idle)["data-parallel"]
    assert (finding.status, finding.saving_ms_per_step) == (status, saving)
    if status in ("fail", "warn"):
        assert "DistributedDataParallel" in finding.advice
        assert f"--nproc-per-node {gpus}" in finding.advice


def test_it_comes_before_what_is_said_of_any_late_host():
    order = list(found())
    assert order.index("data-parallel") < order.index("host-overhead")


def test_each_process_launches_for_its_own_gpu():
    changes = findings.RULES["data-parallel"].examine(
        replace(
            evidence(*(records.rank({"forward": 400, "idle_host": 600}, n) for n in range(4))),
            called=lambda: {BROADCAST: OperatorPace(1.0, 9_000.0, 0.0, 0.0)},
        )
    )[1]
    assert changes is not None
    assert changes.speedup == {"host": 4.0}
    assert changes.removed == {"pauses", "stalls"}

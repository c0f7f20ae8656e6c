"""One process that launches for several GPUs from threads: `nn.DataParallel`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence
from traceprobe import findings
from traceprobe.records.host_stalls import DeviceAllocations
from traceprobe.records.operator_calls import OperatorPace

BROADCAST = "autograd::engine::evaluate_function: BroadcastBackward"


def found(gpus=2, operator=BROADCAST, idle=600, other=0):
    """All findings on such GPUs, by id; of 1,000 ms a step the host is late by so many."""
    parts = {"forward": 1_000 - idle, "idle_host": idle}
    ranks = [
        replace(records.rank(parts, number), pid=1_000 + other * number) for number in range(gpus)
    ]
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


def test_processes_of_their_own_are_no_threads():
    assert found(other=1)["data-parallel"].status == "not-applicable"


@pytest.mark.parametrize("gpus", [2, 4])
def test_what_is_played_has_a_host_for_each_gpu(gpus):
    ranks = [records.rank({"forward": 400, "idle_host": 600}, n) for n in range(gpus)]
    seen = evidence(*(replace(rank, pid=1_000) for rank in ranks))
    called = {BROADCAST: OperatorPace(1.0, 9_000.0, 0.0, 0.0)}
    changes = findings.RULES["data-parallel"].examine(replace(seen, called=lambda: called))[1]
    assert changes is not None
    assert changes.speedup == {"host": float(gpus)}
    assert changes.removed == {"pauses", "stalls"}


@pytest.mark.parametrize("threads", [True, False])
def test_pauses_and_freed_memory_point_to_it(threads):
    whole = records.rank({"forward": 400, "idle_host": 600})
    memory = DeviceAllocations(
        iterations=records.STEPS,
        frees_iterations=records.STEPS,
        allocations_per_step=9.0,
        frees_per_step=9.0,
        host_ns=200 * records.MS * records.STEPS,
        cost_ns=200 * records.MS * records.STEPS,
        for_room=0.0,
        lines={},
    )
    paused = 300 * records.MS * records.STEPS
    host = replace(whole.summary.host, pause_ns=paused, device_allocations=memory)
    rank = replace(whole, pid=1_000, summary=replace(whole.summary, host=host))
    called = {BROADCAST: OperatorPace(1.0, 9_000.0, 0.0, 0.0)} if threads else {}
    seen = replace(evidence(rank, replace(rank, rank=1)), called=lambda: called)
    advice = {each.id: each.advice for each in findings.find_all(seen)}
    for name in ("host-pauses", "allocator-stalls"):
        assert ("`data-parallel`" in advice[name]) is threads

"""A training loop laid out by arithmetic comes back from `analyze` to the nanosecond."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import Loop

LOOP = {
    "steps": 6,
    "h2d_ns": 40_000,
    "forward_ns": 400_000,
    "memset_ns": 20_000,
    "backward_ns": 600_000,
    "comm_ns": 250_000,
    "comm_overlap_ns": 100_000,
    "optimizer_ns": 100_000,
    "d2h_ns": 12_000,
}
CASES = {
    "plain": {},
    "host-bound": {"launch_gap_ns": 30_000},
    "gaps-within-the-latency": {"launch_gap_ns": 7_000},
    "waits-between-steps": {"data_wait_ns": 3_000_000},
    "waits-in-the-loader": {
        "data_wait_ns": 3_000_000,
        "wait": "loader",
        "step_name": "ProfilerStep#{}",
    },
    "waits-in-a-user-range": {"data_wait_ns": 3_000_000, "wait": "range"},
    "synchronises": {"sync_ns": 300_000, "tail_ns": 50_000},
    "gpu-lags-one-step": {"lag_ns": 1_000_000, "data_wait_ns": 300_000},
    "gpu-lags-two-steps": {"lag_ns": 2_500_000, "data_wait_ns": 10_000},
    "gpu-never-idle": {"loop_gap_ns": 0, "lag_ns": 1_200_000, "d2h_ns": 0},
    "python-around-the-step": {"head_ns": 200_000, "tail_ns": 100_000},
    "hidden-communication": {"comm_ns": 100_000},
    "exposed-communication": {"comm_overlap_ns": 0, "optimizer_ns": 0, "d2h_ns": 0},
    "several-collectives": {"collectives": 3, "launch_gap_ns": 31_000, "comm_overlap_ns": 50_000},
    "odd-nanoseconds": {"forward_ns": 400_003, "launch_gap_ns": 20_001, "backward_ns": 600_007},
    "inference": {"backward_ns": 0, "comm_ns": 0, "comm_overlap_ns": 0, "optimizer_ns": 0},
    "backward-annotated-too": {"phase_ranges": frozenset({"forward", "backward", "optimizer"})},
}


def assert_accounted(path, expected):
    report = traceprobe.analyze(traceprobe.load(path))
    (rank,) = report.ranks
    windows = [i for i in rank.iterations if i.partition_ns]
    assert [i.end_ns - i.start_ns for i in windows] == [b - a for a, b in expected.windows]
    for iteration in windows:
        for seen, want in (
            (iteration.partition_ns, expected.partition_ns),
            (iteration.busy_ns, expected.busy_ns),
        ):
            assert {k: v for k, v in seen.items() if v} == {k: v for k, v in want.items() if v}
        assert (iteration.collectives or 0) == expected.collectives
        assert iteration.launches == expected.launches


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("nsys", [False, True], ids=["kineto", "nsight"])
def test_the_accounting_is_exact(tmp_path, case, nsys):
    loop = Loop(**{**LOOP, **CASES[case]})
    write = nsight.write if nsys else kineto.write
    assert_accounted(write(loop.scenario(), tmp_path / "trace"), loop.expected())


@st.composite
def loops(draw):
    """Loops of every shape that the arithmetic covers."""

    def ns(low, high, *, optional=False):
        value = st.integers(low, high)
        return draw(st.just(0) | value if optional else value)

    backward = ns(60_000, 900_000, optional=True)
    gap = ns(0, 60_000)
    kernels = draw(st.tuples(*[st.integers(1, 5)] * 3))
    beside = backward // kernels[1] if gap else backward
    comm = ns(1, 500_000, optional=True) if backward else 0
    return Loop(
        steps=draw(st.integers(4, 6)),
        data_wait_ns=ns(0, 400_000),
        h2d_ns=ns(10_000, 90_000, optional=True),
        forward_ns=ns(60_000, 900_000),
        memset_ns=ns(10_000, 30_000, optional=True),
        backward_ns=backward if backward // kernels[1] >= 10_000 else 0,
        comm_ns=comm,
        comm_overlap_ns=ns(0, min(comm, beside)),
        optimizer_ns=ns(60_000, 300_000, optional=True),
        launch_gap_ns=gap,
        tail_ns=ns(2_000, 80_000),
        lag_ns=ns(0, 200_000),
        kernels=kernels,
        wait=draw(st.sampled_from(["between", "loader", "range"])),
    )


@settings(max_examples=25, deadline=None)
@given(loop=loops())
def test_the_accounting_of_any_loop_is_exact(tmp_path_factory, loop):
    path = kineto.write(loop.scenario(), tmp_path_factory.mktemp("loop") / "trace.json")
    assert_accounted(path, loop.expected())

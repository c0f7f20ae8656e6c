"""Launch queue, bandwidths and occupancy as step functions: traces with known changes."""

from __future__ import annotations

import pytest

from tests.builders import kineto, nsight
from tests.builders.scenario import Message, Script
from traceprobe.ingest.read_trace import read_trace
from traceprobe.timeline.counters import (
    collective_bandwidth,
    copy_bandwidth,
    launch_queue,
    launch_queue_by_stream,
    occupancy,
)

US = 1000
ZERO = 1000 * US
"""Where the scripts begin; an operation at time 0 is none."""


def ops_of(script, tmp_path, **options):
    return read_trace(
        kineto.write(script.build().shifted(ZERO), tmp_path / "t.json", **options)
    ).gpu_ops


def since(frame, start, *columns):
    """The rows, with times in µs after `start`."""
    times = ((frame["time_ns"] - start) // US).to_list()
    return list(zip(*(frame[c].to_list() for c in columns), times, frame["value"], strict=True))


def after_zero(frame, *columns):
    return since(frame, kineto.EPOCH_NS + ZERO, *columns)


def test_a_launch_is_outstanding_from_its_call_to_its_start(tmp_path):
    script = Script()
    script.op("kernel", 10 * US, 20 * US, (0, 2 * US))
    script.op("kernel", 20 * US, 30 * US, (3 * US, 4 * US))
    script.op("h2d", 12 * US, 30 * US, (5 * US, 6 * US), stream=9, bytes=8)
    ops = ops_of(script, tmp_path)
    assert after_zero(launch_queue(ops)) == [(0, 1), (3, 2), (5, 3), (10, 2), (12, 1), (20, 0)]
    assert after_zero(launch_queue_by_stream(ops), "stream") == [
        *((7, 0, 1), (7, 3, 2), (7, 10, 1), (7, 20, 0)),
        *((9, 5, 1), (9, 12, 0)),
    ]


def test_an_end_and_a_start_at_one_instant_are_no_change(tmp_path):
    script = Script()
    script.op("kernel", 5 * US, 6 * US, (0, 1 * US)).op("kernel", 9 * US, 10 * US, (5 * US, 6 * US))
    assert after_zero(launch_queue(ops_of(script, tmp_path))) == [(0, 1), (9, 0)]


@pytest.mark.parametrize("said", [True, False])  # older profilers do not
def test_a_graph_is_one_launch_on_each_stream_it_works_on(said, tmp_path):
    script = Script()
    call = (0, 5 * US)
    for t0, stream in ((10, 7), (12, 7), (14, 8)):
        script.op(
            *("kernel", t0 * US, (t0 + 1) * US, call),
            api="cudaGraphLaunch",
            correlation=1,
            graph=said,
            stream=stream,
        )
    ops = ops_of(script, tmp_path)
    assert after_zero(launch_queue_by_stream(ops), "stream") == [
        *((7, 0, 1), (7, 10, 0)),
        *((8, 0, 1), (8, 14, 0)),
    ]


def test_work_without_a_call_and_work_before_its_call_wait_for_nothing(tmp_path):
    script = Script().op("kernel", 10 * US, 11 * US).op("kernel", 20 * US, 21 * US, (0, US))
    script.op("kernel", 29 * US, 32 * US, (30 * US, 31 * US))
    queue = launch_queue(ops_of(script, tmp_path))
    assert queue["value"].min() == 0
    assert after_zero(queue) == [(0, 1), (20, 0)]


def test_copies_that_run_at_once_add_up_by_kind(tmp_path):
    script = Script()
    script.op("h2d", 0, 10 * US, (0, 1), bytes=100_000)
    script.op("h2d", 5 * US, 15 * US, (0, 1), stream=9, bytes=40_000)
    script.op("p2p", 0, 4 * US, (0, 1), stream=10, bytes=8_000)
    script.op("memset", 20 * US, 21 * US, (0, 1), bytes=3_000)
    script.op("d2h", 30 * US, 30 * US, (0, 1), bytes=3_000)
    script.op("comm", 0, 50 * US, (0, 1), stream=11)
    assert after_zero(copy_bandwidth(ops_of(script, tmp_path)), "kind") == [
        *(("h2d", 0, 10.0), ("h2d", 5, 14.0), ("h2d", 10, 4.0), ("h2d", 15, 0.0)),
        *(("p2p", 0, 2.0), ("p2p", 4, 0.0)),
        *(("memset", 20, 3.0), ("memset", 21, 0.0)),
    ]


def test_bus_bandwidth_takes_what_nccl_tests_takes(tmp_path):
    message = Message(elements_in=1_000, elements_out=1_000, ranks=(0, 1, 2, 3))
    script = Script().op("comm", 0, 2 * US, (0, 1), message=message)
    script.op("comm", 5 * US, 6 * US, (0, 1))
    found = after_zero(collective_bandwidth(ops_of(script, tmp_path)))
    assert found == [(0, 3.0), (2, 0.0)]  # 4000 bytes in 2 µs, times 2 · 3 ÷ 4


def test_occupancy_of_kernels_at_once_is_at_most_all(tmp_path):
    script = Script()
    script.op("kernel", 0, 10 * US, (0, 1), occupancy=30)
    script.op("kernel", 4 * US, 8 * US, (0, 1), stream=9, occupancy=80)
    found = after_zero(occupancy(ops_of(script, tmp_path)))
    assert found == [(0, 30.0), (4, 100.0), (8, 30.0), (10, 0.0)]


def test_nsight_has_the_queue_and_no_occupancy(tmp_path):
    script = Script().op("kernel", 10 * US, 20 * US, (0, 2 * US), occupancy=30)
    ops = read_trace(nsight.write(script.build(), tmp_path / "t.sqlite")).gpu_ops
    assert since(launch_queue(ops), 0) == [(0, 1), (10, 0)]
    assert occupancy(ops).is_empty()


@pytest.mark.parametrize("dialect", ["B", "G"])
def test_a_trace_without_the_evidence_has_empty_counters(dialect, tmp_path):
    script = Script().op("kernel", 10 * US, 20 * US)
    ops = ops_of(script, tmp_path, dialect=dialect)
    frames = (launch_queue(ops), copy_bandwidth(ops), collective_bandwidth(ops))
    assert [frame.height for frame in frames] == [0, 0, 0]
    assert [frame.columns[-2:] for frame in frames] == [["time_ns", "value"]] * 3

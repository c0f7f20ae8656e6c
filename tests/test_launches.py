"""Launch calls, delays and the launch queue of a device: known traces to known numbers."""

from __future__ import annotations

import numpy as np
import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.scenario import Script
from traceprobe.ingest.read_trace import read_trace
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.launches import launch_times, queue_times

US = 1000
ZERO = 1000 * US
START = kineto.EPOCH_NS + ZERO
LOOP = Loop(forward_ns=400 * US, backward_ns=900 * US)


def ops_of(script, tmp_path):
    return read_trace(kineto.write(script.build().shifted(ZERO), tmp_path / "t.json")).gpu_ops


def three(tmp_path):
    """Calls of 2, 4 and 12 µs; kernels of 10, 3 and 12 µs, 4, 4 and 0 µs after them."""
    script = Script()
    script.op("kernel", 6 * US, 16 * US, (0, 2 * US))
    script.op("kernel", 18 * US, 21 * US, (10 * US, 14 * US))
    script.op("kernel", 30 * US, 42 * US, (25 * US, 37 * US))
    return ops_of(script, tmp_path)


def test_calls_and_delays_are_those_of_the_launches(tmp_path):
    times = launch_times(three(tmp_path))
    assert times.count == 3
    assert times.call_ns == (4 * US, pytest.approx(10.4 * US))
    assert times.delay_ns == (4 * US, 4 * US)
    assert times.outlasting == 1  # 4 µs for a kernel of 3


def test_kernels_of_a_graph_and_kernels_without_a_call_have_no_launch_of_their_own(tmp_path):
    script = Script().op("kernel", 6 * US, 16 * US)
    script.op("kernel", 20 * US, 26 * US, (0, 2 * US), graph=True, api="cudaGraphLaunch")
    assert launch_times(ops_of(script, tmp_path)) is None


def test_the_queue_is_weighed_by_time_and_only_in_the_windows_that_count(tmp_path):
    ops = three(tmp_path)
    busy = union(ops["t0"].to_numpy(), ops["t1"].to_numpy())
    idle = Intervals(busy.t1[:-1], busy.t0[1:])
    edges = np.array([0, 20, 40]) * US + START
    # One launch waits from 0 to 6, 10 to 18 and 25 to 30 µs; the GPU idles from 16 to 18, 21 to 30.
    both = queue_times(ops, edges, np.array([0, 1]), idle)
    assert (both.p50, both.p90, both.longest) == (0, 1, 1)
    assert (both.empty_ns, both.starved_ns) == (21 * US, 4 * US)
    second = queue_times(ops, edges, np.array([1]), idle)
    assert (second.empty_ns, second.starved_ns) == (15 * US, 4 * US)


def test_what_changes_at_an_edge_belongs_to_the_window_that_begins_there(tmp_path):
    ops = three(tmp_path)
    edges = np.array([0, 6, 10, 18]) * US + START  # the ends of a wait, and the start of another
    idle = Intervals(*np.array([[16], [18]]) * US + START)
    before, between, after = (
        queue_times(ops, edges, np.array([window]), idle) for window in range(3)
    )
    assert (before.longest, before.empty_ns) == (1, 0)
    assert (between.longest, between.empty_ns) == (0, 4 * US)
    assert (after.longest, after.empty_ns, after.starved_ns) == (1, 0, 0)


def test_windows_without_length_have_no_queue_but_an_empty_one(tmp_path):
    edges = np.array([6, 6]) * US + START
    found = queue_times(three(tmp_path), edges, np.array([0]), Intervals(edges[:0], edges[:0]))
    assert (found.p50, found.p90, found.longest, found.empty_ns) == (0, 0, 0, 0)


def test_a_trace_without_launches_has_no_queue(tmp_path):
    ops = ops_of(Script().op("kernel", 6 * US, 16 * US), tmp_path)
    window = np.array([0, 20]) * US + START
    assert queue_times(ops, window, np.array([0]), Intervals(window[:1], window[1:])) is None


def test_a_report_says_how_far_ahead_the_host_is(tmp_path):
    path = kineto.write(LOOP.scenario(), tmp_path / "loop.json")
    summary = traceprobe.analyze(traceprobe.load(path)).ranks[0].summary
    launches = summary.launches
    assert launches.count > 0
    assert 0 <= launches.queue.starved_ns <= launches.queue.empty_ns <= summary.window_ns
    assert launches.queue.longest >= 1

"""Properties of a whole analysis: what must not change the numbers does not."""

from __future__ import annotations

import json
import random

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests.builders import kineto
from tests.builders.loop import Loop

loops = st.builds(
    Loop,
    steps=st.just(5),
    data_wait_ns=st.integers(0, 3_000_000),
    h2d_ns=st.integers(10_000, 90_000),
    forward_ns=st.just(400_000),
    backward_ns=st.just(600_000),
    comm_ns=st.integers(100_000, 300_000),
    comm_overlap_ns=st.just(100_000),
    optimizer_ns=st.just(100_000),
    launch_gap_ns=st.integers(20_000, 40_000),
)
few = settings(max_examples=6, deadline=None)
TIMES = {"gpu_ops": ("t0", "t1", "launch_t0", "launch_t1"), "host_calls": ("t0", "t1")}


def trace_of(loop, folder):
    path = folder.mktemp("run") / "trace.json"
    kineto.write(loop.scenario(), path)
    return path, traceprobe.load(path)


def numbers(trace):
    """What the report says of each iteration and of the run, without names and clocks."""
    (rank,) = traceprobe.analyze(trace).ranks
    rows = [(i.label, i.partition_ns, i.busy_ns, i.used, i.coverage) for i in rank.iterations]
    return rows, rank.summary


@few
@given(loops)
def test_a_partition_sums_to_its_window_and_no_class_exceeds_its_busy_time(tmp_path_factory, loop):
    _, trace = trace_of(loop, tmp_path_factory)
    (rank,) = traceprobe.analyze(trace).ranks
    for i in rank.iterations:
        if i.partition_ns:
            assert sum(v or 0 for v in i.partition_ns.values()) == i.end_ns - i.start_ns
            for name, busy in i.busy_ns.items():
                assert (i.partition_ns[name] or 0) <= (busy or 0) <= i.end_ns - i.start_ns


@few
@given(loops)
def test_busy_time_is_a_union_never_more_than_the_sum_of_durations(tmp_path_factory, loop):
    _, trace = trace_of(loop, tmp_path_factory)
    (rank,) = traceprobe.analyze(trace).ranks
    total = int((trace.gpu_ops["t1"] - trace.gpu_ops["t0"]).sum())
    busy = [sum(v or 0 for v in i.busy_ns.values()) for i in rank.iterations if i.busy_ns]
    assert sum(busy) <= total


@few
@given(loops, st.integers(0, 2**32))
def test_the_order_of_the_events_in_the_file_does_not_matter(tmp_path_factory, loop, seed):
    path, trace = trace_of(loop, tmp_path_factory)
    content = json.loads(path.read_text())
    random.Random(seed).shuffle(content["traceEvents"])
    path.write_text(json.dumps(content))
    assert numbers(traceprobe.load(path)) == numbers(trace)


@few
@given(loops, st.sampled_from([-(10**10), 12_345, 1_790_000_000_000_000_000]))
def test_the_clock_does_not_matter(tmp_path_factory, loop, shift):
    _, trace = trace_of(loop, tmp_path_factory)
    moved = {
        table: getattr(trace, table).with_columns(
            pl.col(column) + shift for column in TIMES.get(table, ("t0", "t1"))
        )
        for table in ("gpu_ops", "host_calls", "host_ranges", "host_operators", "host_work")
    }
    assert numbers(replace(trace, **moved)) == numbers(trace)


@few
@given(loops, st.integers(1, 7), st.integers(1, 90))
def test_the_numbers_of_devices_and_streams_do_not_matter(tmp_path_factory, loop, device, stream):
    _, trace = trace_of(loop, tmp_path_factory)
    other = replace(
        trace,
        gpu_ops=trace.gpu_ops.with_columns(pl.col("device") + device, pl.col("stream") + stream),
        devices=tuple(replace(d, index=d.index + device) for d in trace.devices),
    )
    assert numbers(other) == numbers(trace)

"""Clocks of host and GPU: a constant offset is found and taken out, another is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from tests.builders import kineto, nsight
from tests.builders.loop import training_loop
from tests.builders.scenario import Process, Script
from traceprobe import Options, UsageError, analyze
from traceprobe.ingest.read_trace import read_trace

MS = 1_000_000
FORMATS = {"kineto": (kineto.write, "json"), "nsight": (nsight.write, "sqlite")}
SYNCHRONISED = {
    "steps": 8,
    "h2d_ns": 40_000,
    "forward_ns": 2 * MS,
    "backward_ns": 3 * MS,
    "optimizer_ns": MS,
    "data_wait_ns": 4 * MS,
    "sync_ns": 10_000,
}


def gpu_moved(scenario, ns, since=0):
    """The GPU's rows on another clock; from `since` on, if not from the beginning."""
    ops = tuple(
        replace(op, t0=op.t0 + ns, t1=op.t1 + ns) if op.t0 >= since else op for op in scenario.ops
    )
    return replace(scenario, ops=ops)


def read(scenario, tmp_path, form="kineto"):
    write, suffix = FORMATS[form]
    return read_trace(write(scenario, tmp_path / f"trace.{suffix}"))


def codes(trace):
    return set(trace.quality.warnings)


def partition(trace):
    return analyze(trace).ranks[0].summary.partition_ns


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("ms", [-60, -3, 3, 60])
def test_a_constant_offset_is_taken_out_and_said(tmp_path, form, ms):
    scenario, expected = training_loop(**SYNCHRONISED)
    trace = read(gpu_moved(scenario, ms * MS), tmp_path, form)
    assert codes(trace) == {"clock-offset"}
    said, towards = re.search(
        r"is ([\d.]+) ms (ahead|behind)", trace.quality.warnings["clock-offset"]
    ).groups()
    assert float(said) == pytest.approx(abs(ms), abs=0.03)
    assert towards == ("ahead" if ms > 0 else "behind")
    found = analyze(trace)
    assert found.verdict.bound == "io"
    share = found.verdict.shares["io"]
    assert share == pytest.approx(expected.shares["io"], abs=0.01)


@pytest.mark.parametrize("lag_ms", [0, 3])
def test_a_queue_of_launches_is_no_offset(tmp_path, lag_ms):
    loop = {**SYNCHRONISED, "sync_ns": 0, "data_wait_ns": 0, "lag_ns": lag_ms * MS}
    if lag_ms:
        loop["loop_gap_ns"] = 100_000
    scenario, _ = training_loop(**loop)
    assert codes(read(scenario, tmp_path)) == set()


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_call_that_waits_the_launches_show_a_gpu_that_is_behind(tmp_path, form):
    scenario, expected = training_loop(**{**SYNCHRONISED, "sync_ns": 0})
    trace = read(gpu_moved(scenario, -60 * MS), tmp_path, form)
    assert codes(trace) == {"clock-offset"}
    assert analyze(trace).verdict.shares["io"] == pytest.approx(expected.shares["io"], abs=0.01)


@pytest.mark.parametrize("form", FORMATS)
def test_an_offset_that_changes_allows_no_verdict(tmp_path, form):
    scenario, _ = training_loop(**{**SYNCHRONISED, "sync_ns": 0})
    middle = scenario.ops[len(scenario.ops) // 2].t0
    torn = gpu_moved(gpu_moved(scenario, -20 * MS), -20 * MS, since=middle - 20 * MS)
    report = analyze(read(torn, tmp_path, form))
    assert "clocks-disagree" in {w.code for w in report.quality.warnings}
    assert report.verdict.bound == "inconclusive"
    assert "clocks" in report.verdict.headline


def test_one_op_before_its_launch_has_a_wrong_link(tmp_path):
    scenario, _ = training_loop(**SYNCHRONISED)
    first, *rest = scenario.ops
    late = replace(first.launch, t0=first.t0 + 10_000, t1=first.t0 + 12_000)
    trace = read(replace(scenario, ops=(replace(first, launch=late), *rest)), tmp_path)
    assert codes(trace) == {"starts-before-launch"}


def test_a_copy_to_pageable_memory_shows_when_it_ended(tmp_path):
    script, at = Script(), 0
    for _ in range(20):
        script.op("kernel", at + 70 * MS, at + 71 * MS, (at, at + 5_000))
        script.op(
            *("d2h", at + 71 * MS, at + 71 * MS + 20_000, (at + 10_000, at + 11 * MS + 28_000)),
            pageable=True,
            bytes=4,
        )
        at += 12 * MS
    trace = read(script.build(), tmp_path)
    assert codes(trace) == {"clock-offset"}
    kernels = trace.gpu_ops.filter(trace.gpu_ops["kind"] == 0)
    assert (kernels["t0"] - kernels["launch_t0"]).to_list() == [10 * MS + 8_000] * 20


def test_streams_that_are_not_waited_for_say_nothing(tmp_path):
    script, at = Script(), 0
    for _ in range(20):
        script.op("kernel", at + 20_000, at + 4 * MS, (at, at + 5_000))
        script.op("kernel", at + 30_000, at + 9 * MS, (at + 6_000, at + 11_000), stream=9)
        script.call("cudaStreamSynchronize", at + 12_000, at + 4 * MS + 8_000)
        at += 10 * MS
    assert codes(read(script.build(), tmp_path)) == set()


@pytest.mark.parametrize("form", FORMATS)
def test_rows_that_are_there_twice_count_once(tmp_path, form):
    scenario, _ = training_loop(**SYNCHRONISED)
    doubled = replace(scenario, ops=tuple(op for op in scenario.ops for _ in (0, 1)))
    trace = read(doubled, tmp_path, form)
    assert codes(trace) == {"duplicate-rows"}
    assert len(trace.gpu_ops) == len(scenario.ops)
    assert analyze(trace).quality.damage == {"duplicate-rows": len(scenario.ops)}


def several(tmp_path, shift, stream=7):
    """Kernels one after the other, and others that begin `shift` later than each of them."""
    script = Script()
    for k in range(100):
        at = k * 300_000
        script.op("kernel", at + 20_000, at + 120_000, (at, at + 5_000))
        begin = at + 20_000 + shift
        script.op("kernel", begin, begin + 100_000, (at + 6_000, at + 11_000), stream=stream)
    return codes(read(script.build(), tmp_path))


@pytest.mark.parametrize(
    ("shift", "stream", "found"),
    [
        (20_000, 7, {"overlapping-kernels"}),
        (95_000, 7, set()),  # as the head of a programmatic launch does
        (20_000, 8, set()),
        (110_000, 7, set()),
    ],
)
def test_a_stream_runs_one_kernel_after_the_other(tmp_path, shift, stream, found):
    assert several(tmp_path, shift, stream) == found


@pytest.mark.parametrize(
    ("ends", "found"), [(1_000, set()), (-1_000, {"overlapping-kernels"})], ids=["after", "in"]
)
def test_a_short_kernel_may_wait_for_the_end_of_the_one_before_it(tmp_path, ends, found):
    script = Script()
    for k in range(100):
        at = k * 300_000
        script.op("kernel", at + 20_000, at + 120_000, (at, at + 5_000))
        head = (at + 100_000, at + 120_000 + ends)
        script.op("kernel", *head, (at + 6_000, at + 11_000))
    assert codes(read(script.build(), tmp_path)) == found


def test_wrong_rows_cost_confidence(tmp_path):
    scenario, _ = training_loop(**SYNCHRONISED)
    sure = analyze(read(scenario, tmp_path)).verdict
    doubtful = analyze(read(gpu_moved(scenario, 3 * MS), tmp_path)).verdict
    assert doubtful.bound == sure.bound
    (term,) = (term for term in doubtful.confidence_terms if term.name == "damage")
    assert (term.value, term.why) == (-0.05, "rows are missing or wrong: clock-offset")
    assert doubtful.confidence < sure.confidence


@pytest.mark.parametrize("wrong", [1e3, 1e-3, 1 / 25])
def test_a_step_without_a_profiler_in_another_unit_is_refused(tmp_path, wrong):
    scenario, expected = training_loop(**SYNCHRONISED)
    step = expected.window_ns / MS
    trace = read(scenario, tmp_path)
    with pytest.raises(UsageError, match="milliseconds of one step"):
        analyze(trace, Options(unprofiled_step_ms=step * wrong))
    assert analyze(trace, Options(unprofiled_step_ms=step / 4)).quality.observer_effect.ratio > 3


def test_a_step_of_many_iterations_may_be_a_mark_that_was_not_found(tmp_path):
    scenario, expected = training_loop(**SYNCHRONISED)
    trace = read(scenario, tmp_path)
    with pytest.raises(UsageError, match=r"as long as 25 of the steps found: .* with --step"):
        analyze(trace, Options(unprofiled_step_ms=25 * expected.window_ns / MS))


def test_a_recorded_step_of_another_unit_is_not_used(tmp_path):
    scenario, _ = training_loop(**SYNCHRONISED)
    trace = read(scenario, tmp_path)
    report = analyze(changed(trace, metadata={"traceprobe": {"unprofiled_step_ms": 1e4}}))
    assert report.quality.observer_effect is None
    assert [w.code for w in report.quality.warnings] == ["implausible-calibration"]


@pytest.mark.parametrize("ms", [-60, 60])
def test_one_synchronisation_of_the_device_is_enough(tmp_path, ms):
    """It waits for all streams, so nothing that was launched before can end later."""
    script, at = Script(), 100 * MS
    for k in range(40):
        for stream in (7, 9):
            script.op(
                "kernel", at + 40_000, at + 900_000 + k * 1_000, (at, at + 5_000), stream=stream
            )
            at += 10_000
        at += MS
    script.op("kernel", at + 40_000, at + 5 * MS, (at, at + 5_000))
    script.call("cudaDeviceSynchronize", at + 6_000, at + 5 * MS + 8_000)
    whole = script.build()
    assert codes(read(whole, tmp_path)) == set()
    trace = read(gpu_moved(whole, ms * MS), tmp_path)
    assert codes(trace) == {"clock-offset"}
    latency = (trace.gpu_ops["t0"] - trace.gpu_ops["launch_t0"]).min()
    assert latency == pytest.approx(40_000, abs=10_000)


def test_a_synchronisation_of_one_of_two_devices_says_nothing_of_the_other(tmp_path):
    script, at = Script(Process(devices=("NVIDIA H200", "NVIDIA H200"))), 0
    for _ in range(20):
        script.op("kernel", at + 20_000, at + 2 * MS, (at, at + 5_000))
        script.op("kernel", at + 30_000, at + 9 * MS, (at + 6_000, at + 11_000), device=1)
        script.call("cudaDeviceSynchronize", at + 12_000, at + 2 * MS + 8_000)
        at += 10 * MS
    assert codes(read(script.build(), tmp_path)) == set()

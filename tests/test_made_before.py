"""Recorded steps that are shorter than their batches take to be made."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.program import evaluate_and_save, program_of_steps
from traceprobe import analyze
from traceprobe.ingest.read_trace import read_trace
from traceprobe.options import Options
from traceprobe.pipeline.calibration import regular_ms
from traceprobe.pipeline.trace_part import part_of
from traceprobe.verdict.made_before import made_before

LOADER = {
    "workers": 8,
    "prefetch_factor": 2,
    "batches_per_step": 1.0,
    "batches": 60,
    "items_per_batch": 32.0,
    "collate_ms": 8.0,
}


@pytest.mark.parametrize(
    ("load", "step", "unprofiled", "unseen"),
    [
        (37.0, 16.0, 25.0, 9.0),  # it takes longer without the profiler
        (27.0, 19.0, 19.0, None),  # the profiler hides by how much
        (20.0, 19.0, 25.0, ...),  # the loader keeps up, nearly
        (5.0, 16.0, 25.0, ...),
        (160.0, 30.0, 23.0, ...),  # no queue feeds so many steps
        (None, 16.0, 25.0, ...),
        (37.0, None, 25.0, ...),
        (37.0, 16.0, None, ...),
    ],
)
def test_steps_are_shorter_than_their_batches_take(load, step, unprofiled, unseen):
    found = made_before(load, step, unprofiled)
    assert (found is None) is (unseen is ...)
    if found is not None:
        assert found.unseen_ms == unseen
        assert found.hidden == pytest.approx(1 - step / (load if unseen is None else unprofiled))


@pytest.mark.parametrize(
    ("step", "unprofiled", "timed", "queued", "unseen"),
    [
        (16.0, 25.0, False, True, 9.0),
        (16.0, 23.0, False, True, ...),  # pauses and clocks do that, too
        (16.0, 25.0, True, True, ...),
        (16.0, 25.0, False, False, ...),
        (None, 25.0, False, True, ...),
        (16.0, None, False, True, ...),
    ],
)
def test_workers_of_unknown_pace_may_have_made_them(step, unprofiled, timed, queued, unseen):
    found = made_before(None, step, unprofiled, timed=timed, queued=queued)
    assert (found is None) is (unseen is ...)
    if found is not None:
        assert (found.unseen_ms, found.hidden) == (unseen, pytest.approx(unseen / unprofiled))


@pytest.fixture
def judged(tmp_path):
    """The report of a recording of a loop that hardly waits, with a loader of such items."""

    def judge(item_ms, unprofiled_ms, rename=("", ""), updates=False, **facts):
        work = {"forward_ns": 800_000, "backward_ns": 1_200_000, "launch_gap_ns": 200_000}
        work["optimizer_ns"] = 100_000 if updates else 0
        loop = Loop(steps=9, data_wait_ns=20_000, wait="loader", **work)
        path = kineto.write(loop.scenario(), tmp_path / "trace.json")
        document = json.loads(path.read_text().replace(*rename))
        known = {} if item_ms is None else {"loader": {**LOADER, "item_ms": item_ms}}
        document["traceprobe"] = {"unprofiled_step_ms": unprofiled_ms, **known, **facts}
        path.write_text(json.dumps(document))
        return analyze(read_trace(path))

    return judge


def status(report, name):
    return next(f.status for f in report.findings if f.id == name)


def test_what_a_step_takes_longer_without_the_profiler_is_waiting_for_data(judged):
    step_ms = judged(0.1, 3.0).quality.observer_effect.profiled_step_ms
    slow = judged(0.5 * step_ms, 2 * step_ms)
    assert slow.verdict.bound == "io"
    assert slow.verdict.shares["io"] == pytest.approx(0.5, abs=0.02)
    assert "made before" in " ".join(slow.verdict.reasons)
    assert not slow.quality.observer_effect.other_conditions
    assert (status(slow, "data-wait"), status(slow, "prefetch-drained")) == ("fail", "fail")


def test_a_loader_that_keeps_up_explains_nothing(judged):
    step_ms = judged(0.1, 3.0).quality.observer_effect.profiled_step_ms
    fast = judged(0.01, 2 * step_ms)
    assert fast.verdict.bound != "io"
    assert "different conditions" in " ".join(fast.verdict.reasons)
    assert fast.quality.observer_effect.other_conditions
    assert "2 or more of these iterations" in " ".join(fast.verdict.reasons)
    assert "iterations (`--step`" not in " ".join(judged(0.01, 1.5 * step_ms).verdict.reasons)
    assert fast.verdict.confidence < judged(0.01, step_ms).verdict.confidence - 0.4
    assert status(fast, "data-wait") == "pass"


def test_a_wait_that_was_timed_without_the_profiler_needs_no_other_reason(judged):
    step_ms = judged(0.1, 3.0).quality.observer_effect.profiled_step_ms
    told = judged(0.01, 2 * step_ms, unprofiled_data_wait_ms=step_ms)
    assert told.verdict.bound == "io"
    assert "different conditions" not in " ".join(told.verdict.reasons)
    assert not told.quality.observer_effect.other_conditions


@pytest.mark.parametrize(("item", "unprofiled"), [(0.5, 2.0), (0.4, 1.0)])
def test_a_loop_that_was_timed_and_did_not_wait_had_no_batches_made_before(
    judged, item, unprofiled
):
    step_ms = judged(0.1, 3.0).quality.observer_effect.profiled_step_ms
    told = judged(item * step_ms, unprofiled * step_ms, unprofiled_data_wait_ms=0.0)
    assert told.verdict.shares["io"] == pytest.approx(0.0, abs=0.01)
    said = [line for finding in told.findings for line in finding.evidence]
    assert "made before" not in " ".join([*said, *told.verdict.reasons])
    assert status(told, "data-wait") == "pass"
    assert status(told, "prefetch-drained") != "fail"


def test_a_wait_that_was_timed_grades_the_finding_as_it_does_the_verdict(judged):
    step_ms = judged(0.1, 3.0).quality.observer_effect.profiled_step_ms
    told = judged(0.5 * step_ms, 2 * step_ms, unprofiled_data_wait_ms=step_ms)
    assert (told.verdict.bound, status(told, "data-wait")) == ("io", "fail")
    finding = next(f for f in told.findings if f.id == "data-wait")
    share = told.verdict.shares["io"]
    assert f"{100 * share:.1f} % of a step without the profiler" in " ".join(finding.evidence)


@pytest.mark.parametrize(
    ("listed", "regular_step_ms"),
    [
        ([*[2.0] * 4, 14.0], 2.0),
        ([*[0.3] * 4, 20.8], pytest.approx(1.9, rel=0.1)),  # the device works for longer than 0.3
    ],
)
def test_long_steps_of_a_loop_that_was_timed_are_left_out_of_its_calibration(
    listed, regular_step_ms
):
    trace = program_of_steps(evaluate_and_save, 21).trace()
    noted = {
        "unprofiled_step_ms": 4.4,
        "unprofiled_data_wait_ms": 0.0,
        "calibration_step_ms": listed,
        "loader": {**LOADER, "item_ms": 0.5},
    }
    part = part_of(replace(trace, metadata={**trace.metadata, "traceprobe": noted}), Options())
    records = [device.record for device in part.devices]
    regular = [device.regular.record for device in part.devices]
    assert regular_ms([part], 4.4, records, regular) == regular_step_ms


def test_steps_far_longer_without_the_profiler_may_wait_for_workers(judged):
    step_ms = judged(None, 3.0, updates=True).quality.observer_effect.profiled_step_ms
    found = judged(None, 2 * step_ms, updates=True)
    assert (found.verdict.bound, found.verdict.confidence <= 0.3) == ("io", True)
    assert found.verdict.headline.startswith("Possibly I/O-bound")
    assert found.verdict.shares["io"] == pytest.approx(0.5, abs=0.02)
    assert "record more steps than lie ready" in " ".join(found.verdict.reasons)
    assert (status(found, "data-wait"), status(found, "prefetch-drained")) == ("fail", "fail")


@pytest.mark.parametrize(
    ("times", "rename", "updates"),
    [
        (1.3, ("", ""), True),
        (2.0, ("_MultiProcessing", "_SingleProcess"), True),
        (2.0, ("", ""), False),
    ],
    ids=["a pause", "no workers", "batches that may be only part of an update"],
)
def test_nor_where_something_else_may_explain_it(judged, times, rename, updates):
    step_ms = judged(None, 3.0, updates=updates).quality.observer_effect.profiled_step_ms
    found = judged(None, times * step_ms, rename, updates)
    assert found.verdict.bound != "io"
    assert found.quality.observer_effect.other_conditions
    assert status(found, "data-wait") == "pass"

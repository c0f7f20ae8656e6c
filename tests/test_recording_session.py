"""A recording goes through its plan: warm-up, calibration, settling, active steps, and the end."""

from __future__ import annotations

import json

import pytest

from traceprobe.capture import recording_plan as plans
from traceprobe.capture.recording_session import RecordingSession
from traceprobe.capture.step_recorder import Recorder

pytestmark = pytest.mark.usefixtures("pytorch")

PLAN = {"warmup": 2, "calibrate": 3, "settle": 1, "active": 2}


class Log:
    """A profiler that only writes down what it is told."""

    def __init__(self):
        self.calls = []
        self.metadata = None

    def start(self):
        self.calls.append("start")

    def step(self):
        self.calls.append("step")

    def abandon(self):
        self.calls.append("abandon")

    def stop(self, metadata):
        self.calls.append("stop")
        self.metadata = metadata


@pytest.fixture
def recording(tmp_path):
    log = Log()
    session = RecordingSession(plans.RecordingPlan(folder=str(tmp_path), **PLAN), log)
    return Recorder(session), log, tmp_path


def test_without_a_plan_the_recorder_makes_one_plain_pass():
    record = Recorder(None)
    assert list(record.steps("abc")) == ["a", "b", "c"]
    assert not record.recording
    with record.phase("forward"):
        pass


def test_the_loop_ends_after_the_planned_steps_and_starts_the_loader_anew(recording):
    record, log, _ = recording
    seen = list(record.steps([1, 2]))
    # 2 warm-up, 3 calibration, 1 settling, 2 active and one more, which the last window ends with
    assert seen == [1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert log.calls == ["start", "step", "step", "step", "stop"]


def test_the_profiler_starts_only_after_the_calibration(recording):
    record, log, _ = recording
    started = []
    for _ in record.steps(range(100)):
        started.append(bool(log.calls))
    assert started == [False] * 5 + [True] * 4


def test_the_sidecar_holds_the_calibration_and_what_the_script_describes(recording):
    record, log, folder = recording
    record.describe(batch_size=4, samples_per_step=4)
    list(record.steps(range(100)))
    sidecar = json.loads((folder / "rank0.traceprobe.json").read_text())
    assert sidecar == log.metadata
    assert sidecar["calibration_steps"] == 3
    assert sidecar["unprofiled_step_ms"] >= sidecar["unprofiled_data_wait_ms"] >= 0
    assert sidecar["workload"] == {"batch_size": 4, "samples_per_step": 4}
    assert len(sidecar["calibration_step_ms"]) == 3
    mean = sum(sidecar["calibration_step_ms"]) / 3
    assert mean == pytest.approx(sidecar["unprofiled_step_ms"], abs=1e-3)
    assert sidecar["samples_per_second"] == pytest.approx(
        4e3 / sidecar["unprofiled_step_ms"], rel=1e-3
    )
    assert sidecar["libraries"]["torch"]
    assert sidecar["hardware"]["cpu_count"] >= 1


def test_a_wait_that_nobody_measures_is_unknown_not_zero(tmp_path):
    session = RecordingSession(plans.RecordingPlan(folder=str(tmp_path), **PLAN), Log())
    number = 0
    while session.before_step(number):
        number += 1
    sidecar = json.loads((tmp_path / "rank0.traceprobe.json").read_text())
    assert sidecar["unprofiled_data_wait_ms"] is None


def test_progress_names_every_stage(recording):
    record, _, folder = recording
    list(record.steps(range(100)))
    states = (folder / "rank0.progress").read_text().splitlines()
    assert states == ["warming up", "calibrating", "profiling", "writing the trace", "done"]


def test_while_nobody_records_a_range_is_one_shared_object_that_does_nothing():
    from traceprobe.capture.profiler_ranges import NO_RANGE

    record = Recorder(None)
    assert record.phase("forward") is record.phase("backward") is NO_RANGE


def test_an_empty_loader_ends_the_loop(recording):
    record, log, _ = recording
    assert list(record.steps([])) == []
    assert log.calls == []


def test_a_plan_comes_back_as_it_was_handed_over(tmp_path, monkeypatch):
    plan = plans.RecordingPlan(folder=str(tmp_path), stacks=True, workload={"name": "unet"}, **PLAN)
    monkeypatch.setenv(plans.RecordingPlan.VARIABLE, str(plan.save()))
    assert plans.RecordingPlan.current() == plan
    assert plan.steps == 9


def test_without_the_variable_there_is_no_plan(monkeypatch):
    monkeypatch.delenv(plans.RecordingPlan.VARIABLE, raising=False)
    assert plans.RecordingPlan.current() is None

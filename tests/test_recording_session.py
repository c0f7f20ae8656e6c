"""A recording goes through its plan: warm-up, calibration, settling, active steps, and the end."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.fake_profiler import SHORT_PLAN, FakeProfiler
from traceprobe.capture.loop.step_recorder import Recorder
from traceprobe.capture.process.progress import steps_missing
from traceprobe.capture.recording import recording_plan as plans
from traceprobe.capture.recording import timed_block, warm_up
from traceprobe.capture.recording.recording_session import RecordingSession

SESSION = "traceprobe.capture.recording.recording_session"

pytestmark = pytest.mark.usefixtures("pytorch")


@pytest.fixture
def recording(tmp_path):
    log = FakeProfiler()
    session = RecordingSession(plans.RecordingPlan(folder=str(tmp_path), **SHORT_PLAN), log)
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
    # 2 warm-up, 2 untimed and 2 calibration, 1 settling, 2 active and one more, which the last
    # window ends with, 2 untimed and 1 calibration
    assert seen == [1, 2] * 6 + [1]
    assert log.calls == ["start 2", "step", "step", "step", "stop", "export"]


def test_the_profiler_runs_between_the_two_halves_of_the_calibration(recording):
    record, log, _ = recording
    runs = []
    for _ in record.steps(range(100)):
        runs.append("start 2" in log.calls and "stop" not in log.calls)
    assert runs == [False] * 6 + [True] * 4 + [False] * 3


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
    session = RecordingSession(
        plans.RecordingPlan(folder=str(tmp_path), **SHORT_PLAN), FakeProfiler()
    )
    number = 0
    while session.before_step(number):
        number += 1
    sidecar = json.loads((tmp_path / "rank0.traceprobe.json").read_text())
    assert sidecar["unprofiled_data_wait_ms"] is None


def test_progress_names_every_stage(recording):
    record, _, folder = recording
    list(record.steps(range(100)))
    states = (folder / "rank0.progress").read_text().splitlines()
    stages = ["warming up", "calibrating", "profiling", "calibrating", "writing the trace"]
    assert states == [*stages, "done"]


def test_while_nobody_records_a_range_is_one_shared_object_that_does_nothing():
    from traceprobe.capture.profiler.profiler_ranges import NO_RANGE

    record = Recorder(None)
    assert record.phase("forward") is record.phase("backward") is NO_RANGE


def test_an_empty_loader_ends_the_loop(recording):
    record, log, _ = recording
    assert list(record.steps([])) == []
    assert log.calls == []


def test_a_plan_comes_back_as_it_was_handed_over(tmp_path, monkeypatch):
    plan = plans.RecordingPlan(
        folder=str(tmp_path), stacks=True, workload={"name": "unet"}, **SHORT_PLAN
    )
    monkeypatch.setenv(plans.RecordingPlan.VARIABLE, str(plan.save()))
    assert plans.RecordingPlan.current() == plan
    assert plan.steps == 13


def test_without_the_variable_there_is_no_plan(monkeypatch):
    monkeypatch.delenv(plans.RecordingPlan.VARIABLE, raising=False)
    assert plans.RecordingPlan.current() is None


class Clock:
    """Time that passes only in steps, so that no other process makes them longer."""

    def __init__(self):
        self.ns = 0

    def perf_counter_ns(self):
        return self.ns

    def monotonic(self):
        return self.ns / 1e9


CLOCK = Clock()


def timed(session, durations):
    """Steps of these lengths, ms, as far as the session goes on."""
    for number, ms in enumerate(durations):
        if not session.before_step(number):
            return
        CLOCK.ns += round(1e6 * ms)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A session of a plan with some of it changed, and what it leaves."""
    monkeypatch.setattr(timed_block, "time", CLOCK)
    monkeypatch.setattr(warm_up, "time", CLOCK)
    log = FakeProfiler()

    def start(**changed):
        return RecordingSession(
            plans.RecordingPlan(folder=str(tmp_path), **SHORT_PLAN | changed), log
        )

    return start, log, lambda: json.loads((tmp_path / "rank0.traceprobe.json").read_text())


def test_the_sidecar_tells_of_warm_up_and_blocks(fresh):
    start, _, sidecar = fresh
    timed(start(), itertools.repeat(1.0))
    assert [(b["profiled"], b["steps"], b["kept"]) for b in sidecar()["blocks"]] == [
        (False, 2, True),
        (True, 4, True),
        (False, 1, True),
    ]
    assert sidecar()["warmup"]["steps"] == 2


def test_a_fixed_warm_up_that_saw_too_little_is_not_called_steady(fresh):
    start, _, sidecar = fresh
    timed(start(), itertools.repeat(1.0))
    warmup = sidecar()["warmup"]
    assert not warmup["steady"]
    assert "after 2" in warmup["reason"]


def test_the_warm_up_lasts_until_slow_first_steps_are_over(fresh):
    start, _, sidecar = fresh
    timed(
        start(most_warmup=60), itertools.chain([60, 50, 40, 30, 20, 10, 8], itertools.repeat(4.0))
    )
    warmup = sidecar()["warmup"]
    assert 7 + 4 <= warmup["steps"] < 60
    assert warmup["steady"]


def test_blocks_hold_whole_periods_of_the_loop(fresh):
    start, log, sidecar = fresh
    evaluates = itertools.cycle([4.0, 4.0, 12.0])
    timed(start(warmup=12, most_warmup=60, calibrate=8), evaluates)
    assert sidecar()["warmup"]["period"] == 3
    assert [b["steps"] % 3 for b in sidecar()["blocks"] if not b["profiled"]] == [0, 0]
    assert "start 3" in log.calls


def test_a_loop_that_gets_slower_is_recorded_with_that_said(fresh):
    start, _, sidecar = fresh
    timed(start(most_warmup=20), (1.15**step for step in itertools.count()))
    assert not sidecar()["warmup"]["steady"]
    assert "still changes after 20" in sidecar()["warmup"]["reason"]


def test_the_profiled_block_is_made_again_where_the_pace_changed_around_it(fresh):
    start, log, sidecar = fresh
    # 2 warm-up, 2 untimed and 2 timed, 4 profiled; the pace changes, and then no more
    timed(start(repeats=2), itertools.chain([4.0] * 10, itertools.repeat(8.0)))
    kept = [b["kept"] for b in sidecar()["blocks"]]
    assert kept == [False, False, True, True, True]
    assert sidecar()["unprofiled_step_ms"] == 8
    assert log.calls.count("stop") == 2
    assert log.calls.count("export") == 1


@pytest.mark.parametrize(
    ("mhz", "ms", "same"),
    [(1900, 600, True), (1700, 600, False), (1700, 400, True), (1500, 400, False)],
)
def test_a_clock_that_changed_by_a_tenth_is_another_if_it_is_known_well(mhz, ms, same):
    clocks = ({"sm_mhz": 1980}, {"sm_mhz": mhz}, {})
    blocks = [timed_block.TimedBlock(True, [0, ms * 1_000_000], [], clock) for clock in clocks]
    assert timed_block.same_clock(blocks) is same


def test_a_program_that_ends_after_the_profiled_block_is_kept_without_the_second_half(fresh):
    start, log, sidecar = fresh
    session = start()
    timed(session, [1.0] * 12)
    session.close()
    assert [b["profiled"] for b in sidecar()["blocks"]] == [False, True]
    assert sidecar()["calibration_steps"] == 2
    assert log.calls[-1] == "export"


def test_a_program_that_ends_while_it_is_profiled_says_how_many_steps_it_needs(fresh, tmp_path):
    start, log, _ = fresh
    session = start()
    timed(session, [1.0] * 8)
    session.close()
    assert log.calls[-1] == "abandon"
    assert steps_missing(tmp_path) == (8, 13)


def block(ms, profiled=False, **clock):
    made = timed_block.TimedBlock(profiled=profiled)
    made.marks = [round(number * ms * 1e6) for number in range(81)]
    made.clock = clock
    return made


ALONE = {"sm_mhz": 1980.0, "others_percent": 0.0}


@pytest.mark.parametrize(
    ("after", "slowed"),
    [
        (block(12, **ALONE), True),
        (block(10.2, **ALONE), False),
        (block(8, **ALONE), False),
        (block(12), False),
        (block(12, sm_mhz=1500.0, others_percent=0.0), False),
        (block(12, sm_mhz=1980.0, others_percent=40.0), False),
    ],
    ids=["longer", "alike", "shorter", "untold", "another clock", "a neighbour"],
)
def test_steps_are_slowed_by_a_profiler_where_nothing_else_changed(after, slowed):
    before, profiled = block(10, **ALONE), block(18, profiled=True, **ALONE)
    assert timed_block.slowed_by_profiler(before, profiled, after) is slowed


@pytest.mark.parametrize(
    ("profiled", "after", "shorter"),
    [(8, 10, True), (8, 8.5, False), (9.5, 10, False), (12, 10, False)],
)
def test_a_profiler_makes_no_step_shorter(profiled, after, shorter):
    blocks = block(10), block(profiled, profiled=True), block(after)
    assert timed_block.shorter_with_profiler(*blocks) is shorter


def recorded_with_repeats(folder, steps):
    """What is noted of a recording that may be made again twice."""
    log = FakeProfiler()
    plan = plans.RecordingPlan(folder=str(folder), **{**SHORT_PLAN, "repeats": 2})
    list(Recorder(RecordingSession(plan, log)).steps(range(steps)))
    return log.metadata


def test_steps_that_are_shorter_with_the_profiler_are_recorded_again(tmp_path, monkeypatch):
    asked = iter([True, False])
    monkeypatch.setattr(f"{SESSION}.shorter_with_profiler", lambda *_: next(asked))
    for other in ("same_pace", "same_clock"):
        monkeypatch.setattr(f"{SESSION}.{other}", lambda *_: True)
    monkeypatch.setattr(f"{SESSION}.slowed_by_profiler", lambda *_: False)
    monkeypatch.setattr(f"{SESSION}.has_long_steps", lambda _: False)
    metadata = recorded_with_repeats(tmp_path, 200)
    assert [(b["profiled"], b["kept"]) for b in metadata["blocks"]] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, True),
    ]


def test_only_steps_before_the_profiler_count_where_it_slows_those_after(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{SESSION}.slowed_by_profiler", lambda *_: True)
    metadata = recorded_with_repeats(tmp_path, 100)
    assert [(b["profiled"], b["kept"]) for b in metadata["blocks"]] == [
        (False, True),
        (True, True),
        (False, False),
    ]
    assert metadata["calibration_steps"] == metadata["blocks"][0]["steps"]

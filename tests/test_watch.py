"""What a watched run is told to be: synthetic steps with known causes, exactly."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from msgspec.structs import replace

from tests.saved_records import tampered
from tests.watch_records import make_watch, process
from traceprobe.capture.watch.capture_trigger import APART, CaptureTrigger, Reason
from traceprobe.capture.watch.rows import ROW, Kind, Row, RowLog
from traceprobe.capture.watch.step_rows import LONG_ROWS, StepRows
from traceprobe.errors import DamagedRecord
from traceprobe.records.watch import Watch
from traceprobe.render import document_of
from traceprobe.render.document import Chart
from traceprobe.watch.events import of_one_worker
from traceprobe.watch.live import Live, LiveProcess, state_line
from traceprobe.watch.pace import stretches
from traceprobe.watch.periods import every_seconds, every_steps, in_rhythm
from traceprobe.watch.processes import read_processes
from traceprobe.watch.summary import Ended, summarize_watch

END = Ended("train", "ended by itself", 0, 100.0)


def steps(count=2_000, ms=50.0, scatter=0.01, seed=0):
    """Durations of a steady run."""
    return ms * np.exp(np.random.default_rng(seed).normal(0, scatter, count))


def told(*processes):
    return summarize_watch(processes, END)


def test_a_quiet_run_has_no_events():
    run = told(process(steps(20_000, scatter=0.05)))
    assert (run.events, run.notes, len(run.pace)) == ([], [], 1)
    assert run.headline == "The run kept its pace, and nothing held it up for long."


def test_of_a_few_steps_no_pace_is_told():
    run = told(process(steps(20)))
    assert (
        run.headline == "Nothing held the run up for long; its pace is only known after 50 steps."
    )


def test_a_pace_that_a_loader_sets_is_steady_and_told_to_wait():
    ms = steps(200)
    run = told(process(ms, wait_ms=0.6 * ms))
    assert run.headline == (
        "The run kept its pace, and the loop waited for its loader 60.0 % of the time."
    )
    page = document_of(run)
    assert page.title == "A steady run that waits for its loader"
    assert "The loop waited for its loader 60.0 % of the time" in page.points


def test_of_several_ranks_the_one_that_waits_is_named():
    """A step is as long on all of them, and the lowest rank alone tells it."""
    ms = steps(200)
    run = told(process(ms), process(ms, rank=1, wait_ms=0.6 * ms))
    assert run.headline == (
        "The run kept its pace, and rank 1 waited for its loader 60.0 % of the time."
    )
    points = document_of(run).points
    assert "Rank 1 waited for its loader 60.0 % of the time, the others at most 0.0 %" in points


def test_of_two_causes_of_a_step_the_one_that_lost_more_is_drawn():
    ms = steps()
    due = np.arange(200, 2_000, 200)
    ms[due] += 1_900
    run = told(process(ms, events=[(Kind.SAVE, n, 0, 1_800.0) for n in due]))
    (saved,) = run.events
    collected = replace(saved, cause="garbage-collection", lost_s=0.1)
    (chart,) = (
        block
        for section in document_of(replace(run, events=[saved, collected])).sections
        for block in section.blocks
        if isinstance(block, Chart)
    )
    assert chart.data["events"]["step"] == saved.steps
    assert set(chart.data["events"]["cause"]) == {"checkpoint"}
    assert [cause for cause, _ in chart.legend] == ["checkpoint"]


def test_a_collection_is_named_with_its_step_and_cost():
    ms = steps()
    ms[731] += 120
    run = told(process(ms, events=[(Kind.COLLECTION, 731, 2, 120.0)]))
    (event,) = run.events
    assert (event.cause, event.steps, event.longest_ms) == ("garbage-collection", [731], 120.0)
    assert event.lost_s == pytest.approx(0.12, abs=0.003)
    assert event.what == "garbage collection: 120 ms"


def test_a_pause_that_the_device_did_not_feel_lost_nothing():
    run = told(process(steps(scatter=0), events=[(Kind.COLLECTION, 731, 2, 120.0)]))
    assert [(event.cause, event.lost_s) for event in run.events] == [("garbage-collection", 0.0)]


def test_checkpoints_have_a_rhythm():
    ms, due = steps(), range(99, 2_000, 100)
    ms[list(due)] += 1_800
    run = told(process(ms, events=[(Kind.SAVE, n, 0, 1_800.0) for n in due]))
    (event,) = run.events
    assert (event.cause, event.count, event.every_steps) == ("checkpoint", 20, 100)
    assert event.what == "checkpoint: every 100th step, 1,800 ms"
    assert event.lost_s == pytest.approx(36, rel=0.01)
    assert run.headline.startswith("Most time was lost to this: checkpoint: every 100th step")


def test_what_nobody_saw_is_told_by_its_rhythm():
    ms = steps()
    ms[7::25] += 30
    (event,) = told(process(ms)).events
    assert (event.cause, event.every_steps) == ("unknown", 25)


def test_a_rhythm_is_seen_among_steps_that_are_long_by_chance():
    noise = np.random.default_rng(1)
    ms = steps(scatter=0.05)
    ms[noise.choice(2_000, 60, replace=False)] += 60
    ms[14::15] += 40
    ms[14::150] -= 40  # some turns are missing
    run = told(process(ms))
    event, others = run.events
    assert (event.cause, event.every_steps) == ("unknown", 15)
    assert event.count == pytest.approx(119, abs=4)
    assert event.what.startswith("the program does extra work: every 15th step, ")
    assert (others.cause, others.every_steps) == ("unknown", None)
    assert others.count == pytest.approx(56, abs=4)


@pytest.mark.parametrize("seed", range(20))
def test_chance_has_no_rhythm(seed):
    some = np.random.default_rng(seed)
    for count in (4, 8, 30, 200):
        assert in_rhythm(np.sort(some.choice(2_000, count, replace=False)), 2_000).size == 0


def test_one_slow_worker_is_told_from_a_slow_loader():
    ms, waits = steps(), np.zeros(2_000)
    ms[800:960:4] += 300
    waits[800:960:4] = 300
    ms[1500] += 200
    waits[1500] = 200
    run = told(process(ms, wait_ms=waits, workers=4))
    (worker,) = run.events
    assert (worker.cause, worker.count, worker.every_steps) == ("loader-worker", 40, 4)
    assert worker.what == "one of 4 loader workers is slow: every 4th step, 300 ms"
    (note,) = run.notes  # 0.2 s of 112
    assert note.startswith("1 single step took longer, 200 ms in all: the loader was late")


@pytest.mark.parametrize(
    ("numbers", "workers", "found"),
    [
        ([3, 5, 7, 9, 11, 15, 40], 2, [True] * 6 + [False]),
        ([3, 5, 7, 9, 90], 2, [False] * 5),
        ([3, 4, 5, 6], 1, [False] * 4),
        ([0, 4, 12, 16, 20, 24], 4, [True] * 6),
        ([], 4, []),
    ],
)
def test_turns_of_one_worker(numbers, workers, found):
    assert of_one_worker(np.array(numbers, np.int64), workers).tolist() == found


@pytest.mark.parametrize(
    ("reason", "words"),
    [("sw_power_cap", "the power limit"), ("sw_thermal_slowdown", "heat, 88 °C")],
)
def test_a_lower_clock_is_where_and_why_the_pace_changed(reason, words):
    ms = steps()
    ms[1210:] *= 1.45
    slow = np.arange(2_000) >= 1210
    readings = {
        "sm_mhz": np.where(slow, 1200.0, 1980.0),
        "temperature_c": np.where(slow, 88.0, 60.0),
    }
    throttled = [frozenset({reason} if late else ()) for late in slow]
    run = told(process(ms, readings=readings, throttled=throttled))
    before, after = run.pace
    assert (before.last, after.first) == (1209, 1210)
    assert (after.cause, after.why) == ("clock", f"GPU clock 1,980 → 1,200 MHz ({words})")
    assert not any("clock changed" in note for note in run.notes)
    assert after.lost_s == pytest.approx(790 * 22.5e-3, rel=0.02)


def test_a_clock_that_changes_again_and_again_is_told_once_with_what_to_do():
    ms = steps()
    slow = np.arange(2_000) // 250 % 2 == 1
    ms[slow] *= 1.45
    readings = {
        "sm_mhz": np.where(slow, 1200.0, 1980.0),
        "temperature_c": np.where(slow, 88.0, 80.0),
    }
    throttled = [frozenset({"hw_thermal_slowdown"} if late else ()) for late in slow]
    notes = told(process(ms, readings=readings, throttled=throttled)).notes
    (note,) = [note for note in notes if "clock changed" in note]
    assert "changed 7 times, between 1,200 and 1,980 MHz (heat, up to 88 °C)" in note
    assert "cooling" in note


def test_a_clock_that_changed_too_little_is_no_cause():
    ms = steps()
    ms[1210:] *= 1.45
    readings = {"sm_mhz": np.where(np.arange(2_000) < 1210, 1980.0, 1950.0)}
    assert told(process(ms, readings=readings)).pace[1].cause == "unknown"


def test_a_thread_without_a_core_is_a_cause():
    ms = steps()
    ms[1000:1400] *= 2
    waited = np.where((np.arange(2_000) >= 1000) & (np.arange(2_000) < 1400), 50e6, 0.0)
    run = told(process(ms, readings={"cpu_wait_ns": np.cumsum(waited)}))
    assert [part.cause for part in run.pace] == [None, "cpu-busy", "cpu-busy"]
    assert (run.pace[1].first, run.pace[1].last) == (1000, 1399)


def test_of_ranks_the_one_that_paused_is_named():
    ms = steps()
    ms[300] += 400
    run = told(process(ms), process(ms, rank=3, events=[(Kind.COLLECTION, 300, 2, 400.0)]))
    assert [(event.rank, event.steps) for event in run.events] == [(3, [300])]
    assert [rank.rank for rank in run.ranks] == [0, 3]


def test_a_start_is_not_held_against_the_run():
    ms = steps()
    ms[:3] = 900
    (event,) = told(process(ms)).events
    assert (event.cause, event.count) == ("start", 3)


def test_a_pace_that_wanders_is_said_to():
    ms = steps(20_000, ms=10.0)
    for place in range(0, 20_000, 2_000):
        ms[place : place + 1_000] *= 1.2
    run = told(process(ms))
    assert len(run.pace) == 1
    assert run.notes[-1].startswith("the pace wanders between 9.99 and 12.0 ms")


def test_of_a_pace_that_wanders_slow_stretches_are_told():
    ms = steps(21_000, ms=10.0)
    slow = range(2_000, 20_000, 4_000)
    for place in slow:
        ms[place : place + 1_000] *= 2
        ms[place + 500 : place + 700] *= 1.2  # no stretch of its own
        ms[place + 2_000 : place + 2_200] *= 1.3
    run = told(process(ms))
    assert [stretch.first for stretch in run.pace[1::2]] == list(slow)
    assert [stretch.cause for stretch in run.pace[1:]] == ["unknown"] * 2 * len(slow)
    # 5 × 200 steps, 3 ms each.
    said = "the pace wanders between .* and 13.0 ms for seconds at a time .3,0.. ms lost in all"
    assert re.match(said, run.notes[-1])


def test_a_pace_that_wanders_where_it_is_slow_alone_is_not_said_to():
    levels = [10, 20, 26, 20, 26, 20, 26, 10]
    ms = np.concatenate(
        [steps(1_000 if level == 10 else 100, level, seed=level) for level in levels]
    )
    run = told(process(ms))
    assert [stretch.first for stretch in run.pace] == [0, 1_000, 1_600]
    assert run.notes == []


def test_a_short_stretch_of_a_pace_that_wanders_is_not_told():
    ms = steps(20_000, ms=10.0)
    for place in range(2_000, 20_000, 4_000):
        ms[place : place + 200] *= 1.4
    ms[12_000:12_150] *= 1.6  # 0.9 s of 200
    assert len(told(process(ms)).pace) == 1
    ms[12_000:12_150] *= 1.5
    assert [stretch.first for stretch in told(process(ms)).pace] == [0, 12_000, 12_150]


@pytest.mark.parametrize(("ms", "count", "parts"), [(8.9, 400, 1), (11.2, 400, 1), (16, 400, 3)])
def test_a_pace_that_is_left_for_seconds_is_told_where_it_costs_or_stands_out(ms, count, parts):
    run_ms = steps(20_000, ms=10.0)
    run_ms[12_000 : 12_000 + count] *= ms / 10
    run = told(process(run_ms))
    assert len(run.pace) == parts
    assert any(note.startswith("the pace wanders") for note in run.notes) == (parts == 1)
    again = np.concatenate([run_ms[:12_000], steps(8_000, ms=ms)])
    assert [stretch.first for stretch in told(process(again)).pace] == [0, 12_000]


def test_stretches_cover_the_run():
    ms = steps()
    ms[400:700] *= 3
    parts = stretches(ms)
    assert [(part.start, part.stop) for part in parts] == [(0, 400), (400, 700), (700, 2_000)]
    assert stretches(np.array([5.0])) == [parts[0].__class__(0, 1, 5.0)]


@pytest.mark.parametrize(
    ("numbers", "period"),
    [
        ([10, 20, 30, 40], 10),
        ([10, 20, 30], None),
        ([10, 20, 40, 50, 60, 80, 90], 10),
        ([3, 17, 18, 60, 99], None),
        ([1, 2, 3, 4, 5], None),
    ],
)
def test_rhythms_in_steps(numbers, period):
    assert every_steps(np.array(numbers)) == period


def test_rhythms_in_seconds():
    assert every_seconds(np.array([0.0, 60.1, 120.0, 180.2])) == pytest.approx(60.1)
    assert every_seconds(np.array([0.0, 10.0, 120.0, 180.2])) is None


def test_rows_survive_a_kill(tmp_path):
    log = RowLog(tmp_path / "rank0-7.rows")
    for number in range(3):
        log.add(Row(Kind.STEP, number, 1, 10**9 * (number + 1), 10**9, 5, 10**9))
    log.write()
    with (tmp_path / "rank0-7.rows").open("ab") as file:
        file.write(b"\1" * (ROW.size - 1))
    (tmp_path / "rank0-7.facts").write_text('{"rank": 0, "began_ns": 0}')
    (tmp_path / "rank0-7.readings").write_text('{"at_ns": 5, "rss_bytes": 7}\n{"at_ns": 6, "rss')
    (found,) = read_processes(tmp_path)
    assert found.ms.tolist() == [1000.0] * 3
    assert found.readings["rss_bytes"].tolist() == [7.0]
    assert not found.ended
    run = told(found)
    assert run.notes == [
        "the process was ended from outside: up to a second of steps before that is missing"
    ]


class Rows(list):
    """Takes the place of a log."""

    add = list.append


def test_a_run_of_any_length_fits_on_a_disk():
    rows = Rows()
    taker = StepRows(rows, single=64)
    for number in range(10_000):
        taker.add(number, number * 100, 1_000 if number == 7_777 else 100, 1)
    taker.close()
    assert len(rows) < 400
    assert sum(row.many for row in rows) == 10_000
    assert sum(row.ns for row in rows) == 10_000 * 100 + 900
    assert [row.number for row in rows if row.longest_ns == 1_000] == [7_777]
    assert LONG_ROWS * ROW.size < 16 << 20


def test_metrics_tell_what_was_noted(tmp_path):
    (tmp_path / "rank1-7.facts").write_text('{"rank": 1, "began_ns": 0}')
    log = RowLog(tmp_path / "rank1-7.rows")
    live = Live(tmp_path, tmp_path / "run.prom", tmp_path / "run.jsonl")
    for number in range(4):
        log.add(Row(Kind.STEP, number, 1, 10**9 * (number + 1), 10**9, 25 * 10**7, 10**9))
        log.add(Row(Kind.SAVE, number, 0, 10**9 * (number + 1), 5 * 10**8))
        log.write()
        live.look()
    text = (tmp_path / "run.prom").read_text()
    assert '# TYPE traceprobe_steps_total counter\ntraceprobe_steps_total{rank="1"} 5\n' in text
    assert 'traceprobe_step_seconds{rank="1"} 1\n' in text
    assert 'traceprobe_loader_wait_seconds_total{rank="1"} 1\n' in text
    assert 'traceprobe_event_seconds_total{rank="1",cause="checkpoint"} 2\n' in text
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert lines[:2] == [
        {"at_s": 1.0, "rank": 1, "event": "checkpoint", "step": 0, "ms": 500.0},
        {"rank": 1, "steps": 2, "step_ms": 1000.0, "wait_share": 0.25},
    ]
    assert len(lines) == 8


def test_a_line_tells_how_a_run_goes_on(tmp_path):
    (tmp_path / "rank0-7.facts").write_text('{"rank": 0, "began_ns": 0}')
    log = RowLog(tmp_path / "rank0-7.rows")
    for number in range(4):
        log.add(Row(Kind.STEP, number, 1, 10**8 * (number + 1), 10**8, 25 * 10**6, 10**8))
    log.write()
    process = LiveProcess(tmp_path / "rank0-7.facts")
    assert list(process.read()) == []
    assert state_line([process]) == "5 steps, 100 ms, loader 25.0 %"
    log.add(Row(Kind.SAVE, 3, 0, 10**9, 18 * 10**8))
    log.write()
    lines = []
    Live(tmp_path, None, None, lines.append).look()
    assert lines == ["5 steps, 100 ms, loader 25.0 %, last checkpoint at step 3: 1,800 ms"]


def captures_of(ms, *, captures, every=0, explained=()):
    """When captures would be made of steps of such lengths."""
    trigger = CaptureTrigger(captures, every, lead=2)
    for number, took in explained:
        trigger.explain(number, took * 10**6)
    made: dict[int, Reason] = {}
    for number, took in enumerate(ms):
        if (reason := trigger.due(number)) is not None:
            made[number] = reason
        trigger.see(number, round(took * 1e6))
    return made


def test_a_rhythm_is_captured_two_steps_before_its_next_turn():
    ms = steps(1_000)
    ms[30::100] += 200
    ms[[77, 299, 310]] += 60  # of no rhythm, and not as long
    made = captures_of(ms, captures=5)
    (begin,) = [number for number, reason in made.items() if reason.kind == "rhythm"]
    assert (begin, made[begin].step, made[begin].period) == (428, 430, 100)


def test_single_long_steps_leave_a_capture_for_a_rhythm():
    ms = steps(4_000)
    ms[[100, 110, 451, 1_023, 2_399]] += 200
    made = captures_of(ms, captures=3)
    assert {number: reason.step for number, reason in made.items()} == {101: 100, 452: 451}
    assert {reason.kind for reason in made.values()} == {"spike"}
    assert list(captures_of(ms, captures=1)) == [101]
    assert captures_of(ms, captures=0) == {}


def test_what_was_timed_needs_no_capture():
    ms = steps(1_000)
    ms[500] += 200
    assert captures_of(ms, captures=2, explained=[(500, 200)]) == {}


def test_captures_at_intervals_are_bounded_and_apart():
    assert list(captures_of(steps(2_000), captures=3, every=400)) == [400, 800, 1_200]
    every = list(captures_of(steps(2_000), captures=100, every=1))
    assert np.diff(every).min() == APART


def test_steps_of_a_capture_are_no_event_and_no_pace():
    ms = steps()
    ms[500:507] = 900  # those under the profiler, and the one in which its trace was written
    ms[1_700] += 900
    collected = [(Kind.COLLECTION, number, 2, 40.0) for number in (503, 506)]
    quiet = told(process(ms, events=[(Kind.CAPTURE, 506, 7, 800.0), *collected]))
    assert [event.steps for event in quiet.events] == [[1_700]]
    assert len(quiet.pace) == 1
    assert quiet.captures_lost_s == pytest.approx(7 * 0.85, rel=0.01)
    assert len(told(process(ms)).pace) == 3


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        (("captures", 0, "steps"), 0, "capture at step 210 contradicts itself"),
        (("captures", 0, "confidence"), 1.5, "capture at step 210 contradicts itself"),
        (("steps",), 0, "no steps"),
        (("ranks",), [], "none is"),
        (("strip", "most_ms"), [1.0], "differ in length"),
        (("pace", 0, "last"), 10**6, "out of order"),
        (("events", 0, "at_s"), [1.0], "contradicts itself"),
    ],
)
def test_a_tampered_run_is_refused(path, to, said):
    text = make_watch().to_json()
    assert Watch.from_json(text).to_json() == text
    with pytest.raises(DamagedRecord, match=said):
        Watch.from_json(tampered(text, *path, to=to))

"""Iterations that do more than the others: which are long, what fills them, what follows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto, memory
from tests.builders.program import UPDATE, Program, evaluate_and_save, program_of_steps
from tests.builders.scenario import AUTOGRAD, Process, Script
from tests.evidence import evidence
from tests.loader_records import make_loader
from tests.records import step
from tests.report_factory import make_report
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.findings.rule import RULES
from traceprobe.formatting import ordinal
from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.model.sidecar import Block, BlockCpu
from traceprobe.model.taxonomy import BUSY, PARTITION
from traceprobe.records.rank import LongIterations
from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.collectives import CollectiveGroup, with_matches
from traceprobe.timeline.long_iterations import LoaderPace, TimedSteps, long_iterations
from traceprobe.verdict.compared_steps import HEAVY
from traceprobe.verdict.correction import correct
from traceprobe.verdict.no_training import cold_share

MS = 1_000_000
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def nothing(program, k):
    """No step does more than another."""


def think(program, ns):
    """Python at work, in operators."""
    begin = program.now
    program.sleep(ns).script.operator("aten::add", begin, program.now)


def report_of(program):
    return traceprobe.analyze(program.trace())


def finding(report):
    return next(f for f in report.findings if f.id == "long-iterations")


def test_where_all_are_alike_none_is_long():
    report = report_of(program_of_steps(nothing))
    assert (finding(report).status, finding(report).saving_ms_per_step) == ("pass", None)
    assert report.ranks[0].long is UNSET


def test_an_evaluation_and_a_checkpoint_every_fifth_step_are_named_with_their_period():
    report = report_of(program_of_steps(evaluate_and_save, 21))
    (long,) = [rank.long for rank in report.ranks]
    assert (long.indices, long.every, long.once) == ([4, 9, 14, 19], 5, False)
    assert long.regular_ms == pytest.approx(2.0, rel=0.1)
    assert long.extra_partition_ns["d2h"] == pytest.approx(4 * 10 * MS, rel=0.01)
    assert long.extra_ns == pytest.approx(4 * 13 * MS, rel=0.02)
    found = finding(report)
    assert found.status == "fail"
    assert found.saving_ms_per_step == pytest.approx(13 * 4 / 20, rel=0.02)
    assert found.evidence[0].startswith("every 5th iteration took 13.0 ms more")
    assert "copies to the host" in found.advice or "async_save" in found.advice


def test_every_third_step_is_called_so():
    report = report_of(
        program_of_steps(lambda program, k: think(program, 9 * MS * (k % 3 == 2)), 19)
    )
    assert finding(report).evidence[0].startswith("every 3rd iteration took 9.00 ms more")


def test_numbers_are_counted_in_english():
    words = "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 33rd 101st 111th 112th"
    assert [ordinal(int(word[:-2])) for word in words.split()] == words.split()


def test_findings_are_held_against_the_calibration_that_they_are_about():
    """Without a profiler no step was long, so regular ones took longer than in the capture."""

    def think_now_and_then(program, k):
        if k % 5 == 4:
            think(program, 6 * MS)

    trace = program_of_steps(think_now_and_then, waits=lambda k: MS).trace()
    noted = {"unprofiled_step_ms": 4.4, "calibration_step_ms": [4.4] * 8}
    report = traceprobe.analyze(replace(trace, metadata={**trace.metadata, "traceprobe": noted}))
    (rank,) = report.ranks
    assert rank.long.regular_ms < 4.0
    waits = next(f for f in report.findings if f.id == "data-wait")
    regular = [i for i in rank.iterations if i.used and i.index not in rank.long.indices]
    shown = sum(i.partition_ns["idle_data_wait"] for i in regular) / len(regular) / 1e6
    assert shown < waits.saving_ms_per_step <= shown + 4.4 - rank.long.regular_ms + 1e-3


def test_the_saving_is_no_more_than_without_the_profiler():
    def think_now_and_then(program, k):
        if k % 5 == 4:
            think(program, 10 * MS)

    trace = program_of_steps(think_now_and_then).trace()
    recorded = finding(traceprobe.analyze(trace)).saving_ms_per_step
    noted = {"unprofiled_step_ms": 3.0, "calibration_step_ms": [2.0, 2.0, 2.0, 2.0, 7.0]}
    report = traceprobe.analyze(replace(trace, metadata={**trace.metadata, "traceprobe": noted}))
    found = finding(report)
    assert found.saving_ms_per_step == 1.0 < recorded
    assert found.evidence[1].endswith(", 1.00 ms without the profiler")


def test_the_picture_shows_a_usual_iteration_the_slowest_and_a_long_one():
    report = report_of(program_of_steps(evaluate_and_save))
    rank = report.ranks[0]
    length = {w.why: w.duration_ns for w in rank.picture.windows}
    every = sorted(i.end_ns - i.start_ns for i in rank.iterations if i.used)
    assert length["long"] == every[-1]
    assert length["slowest"] < length["long"] / 2
    assert length["typical"] == every[(len(every) - len(rank.long.indices) - 1) // 2]


def test_long_iterations_that_recur_count_in_the_shares():
    report = report_of(program_of_steps(evaluate_and_save, 21))
    assert report.ranks[0].summary.iterations_used == 20
    assert report.verdict.shares["other"] == pytest.approx(40 / (20 * 2 + 4 * 13), rel=0.1)
    (other,) = (said for said in report.verdict.reasons if "counts as other" in said)
    assert other == "what counts as other, per step: exposed copies to the host 2.00 ms"


def test_other_findings_are_about_the_regular_iterations():
    def save(program, k):
        if k % 5 == 4:
            think(program, 40 * MS)

    report = report_of(program_of_steps(save, 21))
    assert report.verdict.bound == "overhead"
    assert "Every 5th iteration takes 40 ms more" in report.verdict.headline
    assert any("would be: compute" in reason for reason in report.verdict.reasons)
    overhead = next(f for f in report.findings if f.id == "host-overhead")
    assert overhead.status == "pass"


def recompile(*steps):
    """So many steps are spent in a compiler for most of half a second."""
    return lambda program, k: think(program, 400 * MS) if k in steps else None


@pytest.mark.parametrize("steps", [(7,), (3, 4)], ids=["one step", "two in a row"])
def test_a_recompilation_does_not_decide(steps):
    report = report_of(program_of_steps(recompile(*steps)))
    assert report.verdict.bound == "compute"
    assert report.ranks[0].summary.iterations_used == 15 - len(steps)
    assert "left out" in report.verdict.headline
    assert all(str(k) in report.verdict.headline for k in steps)
    assert "with it the verdict would be: " in " ".join(report.verdict.reasons).replace(
        "them", "it"
    )
    assert finding(report).saving_ms_per_step is None
    assert finding(report).status == "warn"
    skipped = {i.index: i.skip_reason for i in report.ranks[0].iterations if not i.used}
    assert all(skipped[k].startswith("long: 40") for k in steps)


def noted(steps_ms, **facts):
    """What a recording says that timed these steps without the profiler."""
    mean = round(sum(steps_ms) / len(steps_ms), 6)
    return {"unprofiled_step_ms": mean, "calibration_step_ms": steps_ms, **facts}


def report_with(program, sidecar):
    trace = program.trace()
    return traceprobe.analyze(replace(trace, metadata={**trace.metadata, "traceprobe": sidecar}))


def save(*steps):
    return lambda program, k: think(program, 80 * MS) if k in steps else None


EVERY_TENTH = [2.0] * 7 + [42.0] + [2.0] * 6 + [52.0] + [2.0] * 5


def test_what_is_recorded_once_recurs_where_steps_without_the_profiler_are_as_long():
    report = report_with(program_of_steps(save(7)), noted(EVERY_TENTH))
    (long,) = [rank.long for rank in report.ranks]
    assert (long.once, long.every, long.timed_long, long.timed_steps) == (False, None, 2, 19)
    counts = "1 of 15 recorded iterations and 2 of 19 steps without the profiler"
    assert report.verdict.bound == "overhead"
    assert f"{counts} take 80 ms more than the" in report.verdict.headline
    assert "left out" not in report.verdict.headline
    assert report.ranks[0].summary.iterations_used == 15
    found = finding(report)
    assert found.status == "fail"
    assert found.evidence[0].startswith(f"{counts} took 80.0 ms more")
    # 80 ms in 3 of 34 steps; without the profiler 90 ms in 20.
    assert "that is 7.06 ms per step" in found.evidence[1]
    assert found.saving_ms_per_step == pytest.approx(90 / 20, rel=0.01)
    assert found.advice.startswith("Look at what the loop does every so many steps")


@pytest.mark.parametrize(
    "timed", [[2.0] * 20, [2.0] * 19 + [5.0], [2.0] * 10 + [900.0] + [2.0] * 9]
)
def test_what_no_other_step_takes_stays_left_out(timed):
    report = report_with(program_of_steps(save(7)), noted(timed))
    assert report.verdict.bound == "compute"
    assert finding(report).saving_ms_per_step is None
    assert finding(report).evidence[0].startswith("iteration 7 took 80.0 ms more")
    assert "it happened once" in finding(report).evidence[1]


def evaluate_once(program, k):
    """One evaluation among those that are recorded; its outputs are copied to the host."""
    if k == 7:
        program.kernels([f"forward_{i}" for i in range(20)], ns=500_000)
        program.copy_out(500 << 20, 10 * MS)


@pytest.mark.parametrize(
    ("unprofiled", "recurs"),
    [(1.25, True), (1.15, False), (0.9, False), (None, False), (9.0, False)],
    ids=["longer", "hardly", "shorter", "not known", "than one in three makes it"],
)
def test_a_mean_step_longer_than_regular_ones_with_a_profiler_tells_that_it_recurs(
    unprofiled, recurs
):
    program = program_of_steps(evaluate_once)
    regular = report_of(program).ranks[0].long.regular_ms
    step_ms = None if unprofiled is None else unprofiled * regular
    report = traceprobe.analyze(program.trace(), traceprobe.Options(unprofiled_step_ms=step_ms))
    (long,) = [rank.long for rank in report.ranks]
    assert long.once is not recurs
    found = finding(report)
    assert (found.saving_ms_per_step is not None) is recurs
    if recurs:
        assert long.mean_step_ms == pytest.approx(step_ms)
        assert "more than the others do with it" in found.evidence[2]
        assert found.saving_ms_per_step <= step_ms
    else:
        assert long.mean_step_ms is UNSET


@pytest.mark.parametrize(("sm_mhz", "recurs"), [(1980, True), (1500, False)])
def test_steps_at_another_clock_tell_of_no_iteration_that_recurs(sm_mhz, recurs):
    program = program_of_steps(evaluate_once)
    step_ms = 1.25 * report_of(program).ranks[0].long.regular_ms
    blocks = [
        {"profiled": False, "steps": 10, "step_ms": step_ms, "clock": {"sm_mhz": sm_mhz}},
        {"profiled": True, "steps": 10, "step_ms": step_ms, "clock": {"sm_mhz": 1980}},
    ]
    for block in blocks:
        block["clock"]["samples"] = 20
    sidecar = {
        "unprofiled_step_ms": step_ms,
        "warmup": {"steps": 20, "steady": True},
        "blocks": [*blocks, blocks[0]],
    }
    report = report_with(program, sidecar)
    assert report.ranks[0].long.once is not recurs
    assert any(each.code == "calibration-clock" for each in report.quality.warnings) is not recurs


def test_what_the_regular_iterations_wait_is_held_against_the_verdict_of_these():
    """Beside an evaluation they wait less of a step than alone, and a slowed host hides more."""
    program = Program()
    for k in range(22):
        with program.range(f"step {k}"):
            with program.range(LOADER):
                program.sleep(6 * MS)
            program.copy_in()
            for i in range(120):
                name = f"{'forward' if i < 60 else 'backward'}_{i % 6}"
                program.kernel(name, 10_000, thread=program.main if i < 60 else AUTOGRAD)
                program.sleep(95_000)
            program.kernel(UPDATE, 100_000)
            if k % 5 == 4:
                program.kernels([f"forward_{i}" for i in range(20)], ns=1_500_000)
            program.wait()
    trace = memory.trace(program.script.build(), profiled=HEAVY)
    report = traceprobe.analyze(trace, traceprobe.Options(unprofiled_step_ms=24.0))
    wait = next(each for each in report.findings if each.id == "data-wait")
    assert wait.saving_ms_per_step > 8.2  # what they wait in the capture


def test_a_regular_step_without_the_profiler_is_told_from_the_mean_one():
    report = report_with(program_of_steps(save(7)), noted([2.0] * 10 + [900.0] + [2.0] * 9))
    assert "(2.00 ms without the profiler)" in report.verdict.headline
    assert report.verdict.headline.endswith(
        "Iteration 7 took 82 ms (idle: host busy), the others 1.94 ms, and is left out. "
        "Without the profiler a regular step takes 2.00 ms, the mean one 46.9 ms."
    )


@pytest.mark.parametrize(
    ("period", "timed", "recurs"),
    [(20, 10, True), (1, 10, False), (10, 11, False), (4, 3, False)],
    ids=["longer than all", "none", "timed as a whole", "others of it are recorded"],
)
def test_a_period_longer_than_what_was_timed_tells_that_it_recurs(period, timed, recurs):
    warmup = {"steps": 60, "steady": True, "period": period}
    report = report_with(program_of_steps(save(7)), noted([2.0] * timed, warmup=warmup))
    found = finding(report)
    assert ("it happened once" in found.evidence[1]) is not recurs
    if recurs:
        assert report.ranks[0].long.period == period
        said = f"1 of 15 iterations, of a loop that repeats after {period} steps, took 80.0"
        assert found.evidence[0].startswith(said)
        assert found.saving_ms_per_step == pytest.approx(80 / 15, rel=0.01)


def test_the_last_step_of_a_block_waits_for_the_device_and_tells_nothing():
    block = {"profiled": False, "steps": 10, "step_ms": 10.0}
    blocks = [block, {**block, "profiled": True}, block]
    timed = [*[2.0] * 9, 82.0] * 2
    report = report_with(program_of_steps(save(7)), noted(timed, blocks=blocks))
    assert "it happened once" in finding(report).evidence[1]


def on_cpu(save_ms, at=5, steps=10):
    """Three lines that compute, and nothing that is recorded while step `at` saves."""
    script, now = Script(Process(devices=())), 0
    for k in range(steps):
        begin = now
        for line in (3, 4, 5):
            script.operator(f"train.py({line}): main", now, now + 2 * MS)
            script.operator(f"aten::op{line}", now, now + 2 * MS)
            now += 2 * MS
        now += (save_ms if k == at else 0) * MS
        script.range(f"step {k}", begin, now)
    return script.build()


def test_a_pause_of_a_recurring_iteration_is_not_placed_at_the_operator_after_it(tmp_path):
    trace = traceprobe.load(kineto.write(on_cpu(60), tmp_path / "trace.json"))
    steps = [6.0] * 7 + [48.0] + [6.0] * 12
    report = traceprobe.analyze(replace(trace, metadata={"traceprobe": noted(steps)}))
    (why,) = report.verdict.missing
    assert "no operator runs, mostly in long iterations: annotate what the loop does" in why
    assert finding(report).sites is UNSET
    assert finding(report).saving_ms_per_step == pytest.approx(42 / 20, rel=0.05)


def test_compilation_in_the_first_two_steps_does_not_decide():
    report = report_of(program_of_steps(recompile(0, 1)))
    assert report.verdict.bound == "compute"
    assert not {0, 1} & {i.index for i in report.ranks[0].iterations if i.used}


def test_one_epoch_that_begins_does_not_decide():
    report = report_of(program_of_steps(nothing, waits=lambda k: 3_000 * MS if k == 8 else 20_000))
    assert report.verdict.bound == "compute"
    assert "Iteration 7 took 3,002 ms (idle: waiting for data)" in report.verdict.headline
    assert report.verdict.reasons[-1].endswith("with it the verdict would be: I/O-bound")
    assert "persistent_workers" in finding(report).advice


def test_a_loader_that_delivers_in_bursts_has_no_outliers():
    report = report_of(program_of_steps(nothing, waits=lambda k: 1_400 * MS if k % 2 else 20_000))
    assert report.verdict.bound == "io"
    assert finding(report).status == "pass"
    assert "left out" not in report.verdict.headline


@pytest.mark.parametrize("every", [3, 5, 8])
def test_a_burst_that_is_rare_is_the_loaders_pace_too(every):
    report = report_of(
        program_of_steps(nothing, 25, waits=lambda k: 30 * MS if k % every == 1 else 20_000)
    )
    assert report.verdict.bound == "io"
    assert finding(report).status == "pass"


@pytest.mark.parametrize(
    ("loads", "recorded", "used"), [(True, 16, 15), (False, 16, 14), (False, 8, 14)]
)
def test_waits_for_a_rank_are_no_outliers_where_it_has_none(loads, recorded, used):
    """One rank is late in step 9: its loader delivers in bursts, or it compiles.

    Args:
        recorded: steps of that rank; where it ends before step 9, it tells nothing of that.
    """
    late = 400 * MS

    def waiting(program, k):
        program.collective(50_000 + (late if k == 9 else 0)).wait()

    def awaited(program, k):
        if k == 9 and not loads:
            think(program, late)
        program.collective(50_000).wait()

    def waits(k):
        return late if k == 9 and loads else 30 * MS if k % 4 == 1 else 20_000

    ranks = [Process(pid=1000 + 100 * rank, rank=rank) for rank in range(2)]
    programs = (
        program_of_steps(waiting, process=ranks[0]),
        program_of_steps(awaited, recorded, waits=waits, process=ranks[1]),
    )
    report = traceprobe.analyze([program.trace() for program in programs])
    found = [rank.summary.iterations_used for rank in report.ranks]
    assert found == [used, min(used, recorded - 1)]


def test_an_outlier_that_changes_nothing_stays():
    report = report_of(program_of_steps(recompile(7), waits=lambda k: 200 * MS))
    assert report.verdict.bound == "io"
    assert report.ranks[0].summary.iterations_used == 15
    assert "left out" not in report.verdict.headline


def test_a_single_wait_is_a_burst_where_the_loader_is_known_to_be_slower():
    lengths, waits = [10, 10, 10, 105, 10, 10], [0, 0, 0, 95, 0, 0]
    slower, faster = LoaderPace(batch=120, step=20), LoaderPace(batch=120, step=5)
    started = LoaderPace(batch=90, step=20)
    found = [long_iterations(account(lengths, waits), p) for p in (slower, faster, started)]
    assert [each is None for each in found] == [True, False, False]


@pytest.mark.parametrize(("waited", "once"), [(16, False), (7, True), (0, True), (None, True)])
def test_a_single_wait_is_one_of_many_where_the_loop_waits_as_much_without_the_profiler(
    waited, once
):
    found = long_iterations(
        account([10, 10, 10, 105, 10, 10], [0, 0, 0, 95, 0, 0]), LoaderPace(waited=waited)
    )
    assert (found is not None) is once


def account(lengths, waits=None, work=None, grids=None):
    """As much of a device's timeline as the rule looks at; lengths in µs.

    Args:
        work: kernels of the forward pass in each iteration. grids: blocks of each kernel.
    """
    edges = np.concatenate([[0], np.cumsum(lengths)])
    wait = np.array(waits or [0] * len(lengths), dtype=np.int64)
    begins = edges[:-1].repeat(work or [1] * len(lengths))
    return SimpleNamespace(
        edges=edges,
        used=np.ones(len(lengths), dtype=bool),
        index=np.arange(len(lengths)),
        exclusive={
            **dict.fromkeys(BUSY, 0 * wait),
            "idle_data_wait": wait,
            "forward": np.diff(edges) - wait,
        },
        ops=pl.DataFrame(
            {
                "t0": begins,
                "kind": int(Kind.KERNEL),
                "phase": PARTITION.index("forward"),
                "grid": grids or [UNKNOWN] * len(begins),
            }
        ),
    )


@pytest.mark.parametrize(
    ("lengths", "long"),
    [
        ([10] * 9, None),
        ([10, 10, 16, 10, 10, 10], [2]),
        ([10, 10, 15, 10, 10, 10], None),
        ([10, 20, 10, 20, 10, 20], None),
        ([10, 10, 20, 10, 10, 20], [2, 5]),
        ([10, 10, 99], None),
        ([10, 10, 10, 99], [3]),
    ],
    ids=[
        "all alike",
        "1.6 medians",
        "1.5 medians",
        "every second one",
        "every third one",
        "three iterations tell nothing",
        "one of four",
    ],
)
def test_which_iterations_are_long(lengths, long):
    found = long_iterations(account(lengths))
    assert (None if found is None else found.windows.tolist()) == long


@pytest.mark.parametrize(
    ("waits", "long"),
    [
        ([0, 0, 0, 95, 0, 0], [3]),
        ([0, 0, 0, 85, 0, 0], None),
        ([0, 95, 0, 95, 0, 0], None),
    ],
    ids=["one of more than ten medians", "one of less", "two"],
)
def test_of_waits_for_data_only_a_single_very_long_one_counts(waits, long):
    found = long_iterations(account([10 + wait for wait in waits], waits))
    assert (None if found is None else found.windows.tolist()) == long


LONG_ONE = [10, 10, 10, 50, 10, 10]


@pytest.mark.parametrize(
    ("timed", "beside"),
    [
        (TimedSteps([10] * 9 + [50]), 1),
        (TimedSteps([10] * 9 + [24]), 1),
        (TimedSteps([10] * 9 + [23]), 0),
        (TimedSteps([10] * 9 + [130]), 1),
        (TimedSteps([10] * 9 + [131]), 0),
        (TimedSteps([40] * 9 + [59]), 0),
        (TimedSteps([10] * 9 + [50], waited=1.9), 1),
        (TimedSteps([10] * 9 + [50], waited=2.1), 0),
        (TimedSteps([10] * 9 + [50], ahead=True), 1),
        (TimedSteps([3] * 9 + [50], ahead=True), 0),
        (TimedSteps([3, 3, 65] * 4, ahead=True), 4),
        (TimedSteps([3, 3, 30] * 4, ahead=True), 0),
        (TimedSteps([4, 4, 4, 14, 65] * 3, ahead=True), 3),
        (TimedSteps([3] * 9 + [50]), 1),
        (TimedSteps([]), 0),
    ],
    ids=[
        "as long",
        "a third as much more",
        "less",
        "three times as much more",
        "more",
        "regular",
        "some waiting for data",
        "half of it may be waiting for data",
        "as long as the device needs",
        "the host is ahead",
        "the host is ahead and steps are long in all",
        "the host is ahead and waits for the device",
        "the host is ahead and waits for the device in some",
        "a host that computes",
        "none",
    ],
)
def test_which_steps_without_the_profiler_are_long_as_the_recorded_ones(timed, beside):
    found = long_iterations(account(LONG_ONE), timed=timed)
    assert (found.beside, found.once) == (beside, beside == 0)
    assert found.timed == (len(timed.ns) if beside else 0)


def test_the_start_of_an_epoch_is_not_told_by_steps_that_are_as_long():
    waits = [0, 0, 0, 95, 0, 0]
    found = long_iterations(
        account([10 + wait for wait in waits], waits), timed=TimedSteps([10] * 9 + [105])
    )
    assert (found.beside, found.once) == (0, True)


@pytest.mark.parametrize(
    ("at", "every", "once"),
    [
        ([4], None, True),
        ([4, 5], None, True),
        ([4, 9], None, False),
        ([4, 9, 14], None, False),  # 19 is not long
        ([4, 9, 14, 19], 5, False),
        ([9, 14, 19], None, False),  # nor is 4
        ([5, 11, 17], 6, False),
        ([4, 9, 13], None, False),
        ([4, 5, 6], None, False),
    ],
)
def test_what_recurs_has_a_period_and_what_happened_once_has_none(at, every, once):
    found = long_iterations(account([30 if k in at else 10 for k in range(20)]))
    assert (found.windows.tolist(), found.every, found.once) == (at, every, once)


@pytest.mark.parametrize(
    ("passes", "update", "blocks", "long"),
    [
        (20, 1.0, 300, False),
        (20, 1.05, 300, False),
        (20, 2.0, 300, True),
        (9, 1.0, 300, True),
        (20, 0.0, 300, True),
        (20, 1.0, 100, True),
        (20, 1.0, UNKNOWN, True),
    ],
    ids=["input", "nearly", "slower GPU", "idle", "no update seen", "same kernels", "no grids"],
)
def test_kernels_that_take_longer_are_those_of_a_longer_input_if_they_have_more_blocks(
    passes, update, blocks, long
):
    """Of 30 and 10 ms; three sequence lengths in turn were one extra piece of work."""
    usual = min(blocks, 100)
    grids = [blocks if k == 4 else usual for k in range(9)]
    found = account([30 if k == 4 else 10 for k in range(9)], grids=grids)
    regular = 9 - (update > 0)
    more = np.where(np.arange(9) == 4, passes, 0)
    found.exclusive["forward"] = (regular // 2 + more // 2) * np.ones(9, dtype=np.int64)
    found.exclusive["backward"] = (regular // 2 + more - more // 2) * np.ones(9, dtype=np.int64)
    found.exclusive["optimizer"] = np.where(np.arange(9) == 4, update, min(update, 1.0))
    assert (long_iterations(found) is not None) is long


@pytest.mark.parametrize(
    ("at", "work", "long", "more"),
    [
        ([2, 4], {}, [2, 4], {}),
        ([2, 4], {2: 9, 4: 7}, [2, 4], {"forward": 14}),
        ([2, 4], {4: 7}, [4], {"forward": 6}),
        ([2, 4], {2: 9, 4: 7, 6: 8}, [2], {"forward": 6}),
    ],
    ids=["none", "both", "one of two", "as much work as a regular one"],
)
def test_what_runs_more_operations_does_more_and_not_what_runs_them_slowly(at, work, long, more):
    lengths = [30 if k in at else 10 for k in range(9)]
    found = long_iterations(account(lengths, work=[work.get(k, 1) for k in range(9)]))
    assert (found.windows.tolist(), dict(found.more_work)) == (long, more)


def test_two_slow_steps_are_no_period_and_save_nothing():
    report = report_of(
        program_of_steps(lambda program, k: think(program, 20 * MS * (k in (6, 8))), 15)
    )
    found = finding(report)
    assert found.evidence[0].startswith("2 of 14 iterations took 20.0 ms more")
    assert (found.status, found.saving_ms_per_step) == ("warn", None)
    assert "no fixed distance" in found.evidence[1]
    assert found.advice.startswith("Record more steps")
    assert report.ranks[0].long.every is None


def evaluate_now_and_then(program, k):
    """At no fixed distance; an evaluation is work, and so paid for."""
    if k in (3, 9, 11):
        with program.range("forward"):
            program.kernels([f"forward_{i}" for i in range(20)], ns=150_000)


def passes(count, update):
    """A step of so many passes, with or without an update."""

    def step_of(program):
        for _ in range(count):
            program.kernels([f"forward_{i}" for i in range(6)], ns=150_000)
            program.kernels([f"backward_{i}" for i in range(6)], ns=150_000, backward=True)
        if update:
            program.kernels([UPDATE] * 12, ns=150_000)
        program.wait()

    return step_of


def steps_of(*contents):
    program = Program()
    for k, run in enumerate(contents):
        with program.range(f"step {k}"), program.range(LOADER):
            program.sleep(20_000)
        run(program)
    return program


def test_an_update_among_micro_batches_is_no_extra_work():
    contents = [passes(1, k in (2, 6)) for k in range(9)]
    assert finding(report_of(steps_of(*contents))).status == "pass"
    for evaluating, update in ((4, False), (6, True)):
        changed = [*contents, passes(1, False)]
        changed[evaluating] = passes(3, update)
        report = report_of(steps_of(*changed))
        assert finding(report).status == "warn"
        assert report.ranks[0].long.indices == [evaluating]


@pytest.mark.parametrize(
    ("lengths", "status"),
    [
        ((4, 5, 4, 8, 5, 4, 8, 5, 4), "pass"),
        ((4, 4, 4, 8, 4, 4, 8, 4, 4), "warn"),
        ((4, 5, 4, 8, 4, 4, 5, 8, 4, 5, 4, 8, 4, 4), "warn"),
    ],
    ids=["any length", "two of them", "every fourth"],
)
def test_iterations_of_any_length_do_no_extra_work(lengths, status):
    """As episodes are: the longer ones do the same more often, and the others differ, too."""
    contents = [passes(count, True) for count in lengths]
    assert finding(report_of(steps_of(*contents))).status == status


def test_what_has_no_period_but_more_operations_is_saved():
    found = finding(report_of(program_of_steps(evaluate_now_and_then)))
    assert found.evidence[0].startswith("3 of 15 iterations took 2.98 ms more")
    assert found.saving_ms_per_step == pytest.approx(3 * 2.98 / 15, rel=0.02)
    assert "evaluation, or rollouts" in found.advice


@pytest.mark.parametrize(
    ("loader", "kept"),
    [(None, True), (0, False), (2, True)],
)
def test_only_workers_that_start_again_are_to_be_kept(loader, kept):
    report = report_of(program_of_steps(nothing, waits=lambda k: 3_000 * MS if k == 8 else 20_000))
    found = evidence(*report.ranks, loader=None if loader is None else make_loader(workers=loader))
    long = LongIterations(
        indices=[7],
        every=None,
        once=True,
        regular_ms=2.0,
        extra_ns=3_000 * MS,
        extra_partition_ns={"idle_data_wait": 3_000 * MS},
    )
    advice = RULES["long-iterations"](replace(found, long=[long], whole=report.ranks)).advice
    begins = "Keep the loader's workers" if loader == 2 else "Load what is loaded there"
    assert advice.startswith(begins)
    assert ("persistent_workers" in advice) is kept
    waiting = replace(long, extra_partition_ns={"communication": 3_000 * MS})
    advice = RULES["long-iterations"](replace(found, long=[waiting], whole=report.ranks)).advice
    assert advice.startswith("Another rank was late")


def told_of_two(read, *, every=None, more="idle_host"):
    """What is found of two long iterations and as many steps, beside these blocks of steps."""
    report = report_of(program_of_steps(nothing))
    long = LongIterations(
        indices=[3, 10],
        every=every,
        once=False,
        timed_long=2,
        timed_steps=20,
        regular_ms=2.0,
        extra_ns=10 * MS,
        extra_partition_ns={more: 10 * MS},
    )
    seen = evidence(*report.ranks)
    return RULES["long-iterations"](
        replace(seen, long=[long], whole=report.ranks, blocks={0: read})
    )


@pytest.mark.parametrize(
    ("others", "every", "status"),
    [(2.0, None, "inconclusive"), (2.0, 7, "fail"), (0.0, None, "fail")],
    ids=["a busy machine", "a period of the loop", "nobody else"],
)
def test_what_other_programs_may_have_taken_is_not_the_programs(others, every, status):
    cpu = BlockCpu(ran=0.6, waited=0.4, loop_waited=0.4, others=others, cores=2)
    read = [Block(profiled=False, steps=20, step_ms=2.0, cpu=cpu)]
    found = told_of_two(read, every=every)
    assert found.status == status
    assert (found.saving_ms_per_step is None) is (status == "inconclusive")
    assert any("other programs had the loop's core" in said for said in found.evidence) is (
        status == "inconclusive"
    )


@pytest.mark.parametrize(
    ("last", "more", "status"),
    [
        (2.0, "idle_host", "fail"),
        (6.0, "idle_host", "inconclusive"),
        (6.0, "forward", "fail"),
    ],
    ids=["one pace", "two paces", "two paces, and more computing"],
)
def test_blocks_of_several_paces_say_that_it_may_be_the_machine(last, more, status):
    read = [Block(profiled=False, steps=20, step_ms=ms) for ms in (2.0, last)]
    assert told_of_two(read, more=more).status == status


def wait_and_look(program, k):
    """Every fourth step waits for a file, and runs the same forward kernels a little longer."""
    with program.range("forward"):
        program.kernel("forward_head", 200_000 + 900_000 * (k % 4 == 3))
    think(program, 20 * MS * (k % 4 == 3))


def test_what_does_not_fill_the_extra_time_picks_no_advice():
    found = finding(report_of(program_of_steps(wait_and_look)))
    assert found.evidence[0].startswith("every 4th iteration")
    assert "forward" not in found.evidence[2]
    assert "evaluation, or rollouts" not in found.advice


def test_gradients_of_more_batches_are_no_evaluation():
    def accumulate(program, k):
        if k % 4 == 3:
            with program.range("forward"):
                program.kernels([f"forward_{i}" for i in range(20)], ns=150_000)
            program.kernels([f"backward_{i}" for i in range(20)], ns=150_000, backward=True)

    found = finding(report_of(program_of_steps(accumulate)))
    assert "forward" in found.evidence[2]
    assert "evaluation, or rollouts" not in found.advice


def test_what_long_iterations_have_more_of_is_told_by_class():
    lengths, waits = [20, 20, 20, 60, 20, 20], [5, 5, 5, 1, 5, 5]
    found = long_iterations(account(lengths, waits))
    assert dict(found.extra) == {"forward": 59 - 15}
    assert found.extra_ns == 40


def test_collectives_of_a_long_iteration_are_not_matched_for_the_others():
    """Of three, the one of the long iteration is neither counted nor matched."""
    size = int(Operation.ALL_REDUCE), 1000, 2
    rows = [(*size, k, 10 * k, 10 * k + 7) for k in range(3)]
    table = pl.DataFrame(
        rows, schema=["operation", "bytes", "group_size", "iteration", "t0", "t1"], orient="row"
    )
    matched = MatchedCollectives(
        np.arange(3), np.array([5, 5, 5]), np.array([2, 2, 2]), np.arange(3)
    )
    group = CollectiveGroup(Operation.ALL_REDUCE, 1000, 2, 2, 14, 14, 0, 14)
    regular = table.filter(pl.col("iteration") != 1)
    (found,) = with_matches([group], table, matched, regular)
    assert (found.count, found.matched, found.transfer_ns, found.skew_ns) == (2, 2, 10, 4)
    (every,) = with_matches([group], table, matched)
    assert every.matched == 3


def rare(**changes):
    """One of four recorded iterations is long, and steps without the profiler are."""
    return LongIterations(
        **{
            "indices": [2],
            "every": None,
            "once": False,
            "regular_ms": 900.0,
            "extra_ns": 400 * MS,
            "extra_partition_ns": {"idle_host": 400 * MS},
            "timed_long": 10,
            "timed_steps": 38,
            **changes,
        }
    )


@pytest.mark.parametrize(("timed", "cold"), [(10, 0.0), (UNSET, 0.2)])
def test_what_recurs_in_timed_steps_sets_nothing_up(timed, cold):
    host = records.host(set_up_idle_ns=200 * records.MS * records.STEPS)
    rank = replace(records.rank(step(overhead=300), host=host), long=rare(timed_long=timed))
    assert cold_share(rank) == pytest.approx(cold)


@pytest.mark.parametrize(("timed", "ruled_out"), [(10, False), (UNSET, True)])
def test_a_mean_of_few_long_iterations_does_not_rule_the_host_out(timed, ruled_out):
    rank = replace(records.rank(step(overhead=300)), long=rare(timed_long=timed))
    found = correct([rank], None, 1_000 * records.MS, frozenset({"operators"}))
    assert found.overhead_ruled_out is ruled_out


def test_a_cause_of_long_iterations_comes_before_them():
    whole = make_report("overhead")
    long, stalls = (
        replace(whole.findings[0], id=name, status="fail", saving_ms_per_step=ms, saving_of=of)
        for name, ms, of in (
            ("long-iterations", 8.05, []),
            ("allocator-stalls", 8.04, ["idle_host"]),
        )
    )
    report = replace(whole, findings=[long, stalls])
    assert [f.id for f in first_fixes(report)] == ["allocator-stalls", "long-iterations"]

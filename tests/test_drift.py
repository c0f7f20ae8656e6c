"""A slow loader that ready batches hide at first: found where it is, and nowhere else.

Times are ms. A step computes for 100 ms and waits for data besides, unless a test says otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import memory
from tests.builders.scenario import COMM_STREAM, Process, Script
from tests.records import MS
from tests.report_factory import nanoseconds
from traceprobe import findings
from traceprobe.verdict import drift
from traceprobe.verdict.correction import correct
from traceprobe.verdict.judge import judge
from traceprobe.verdict.thresholds import Thresholds

THRESHOLDS = Thresholds()
COMPUTE = 100


def change(waits, steps=None, thresholds=THRESHOLDS):
    """Where these waits change: (first of the earlier part, first of the later), or None."""
    waits = np.asarray(waits, np.float64)
    steps = COMPUTE + waits if steps is None else np.asarray(steps, np.float64)
    found = drift.change_point(waits, steps, thresholds)
    return found and (found.start, found.at)


def loader(workers, batch_ms, steps, *, compute=COMPUTE, ready=None, scatter=0.0, seed=0):
    """Waits of a loop whose workers take turns, each with two batches asked for; by arithmetic."""
    random = np.random.default_rng(seed)
    asked = 2 * workers
    ready = asked if ready is None else ready
    free, done, now, waits = np.zeros(workers), [0.0] * asked, 0.0, []

    def work(batch, since):
        worker = batch % workers
        free[worker] = max(free[worker], since) + batch_ms * (1 + scatter * random.normal())
        return free[worker]

    for batch in range(ready, asked):
        done[batch] = work(batch, 0.0)
    for k in range(steps):
        waits.append(max(done[k] - now, 0.0))
        now += waits[-1]
        done.append(work(k + asked, now))
        now += compute
    return waits


@pytest.mark.parametrize("before", [3, 5, 40])
@pytest.mark.parametrize("after", [3, 8, 40])
def test_a_queue_that_runs_dry_is_found_where_it_does(before, after):
    assert change([0] * before + [50] * after) == (0, before)


@pytest.mark.parametrize(
    "waits", [[0, 0, 50, 50, 50, 50], [0, 0, 0, 0, 50, 50], [0, 0, 50, 50, 50]]
)
def test_three_iterations_are_needed_on_both_sides(waits):
    assert change(waits) is None


@pytest.mark.parametrize(("wait", "found"), [(5.2, None), (5.3, (0, 5))])
def test_the_rise_must_be_five_percent_of_the_later_step(wait, found):
    assert change([0] * 5 + [wait] * 5) == found


@pytest.mark.parametrize(("before", "found"), [(12.6, None), (12.4, (0, 5))])
def test_the_wait_before_must_be_a_quarter_at_most(before, found):
    assert change([before] * 5 + [50] * 5) == found


@pytest.mark.parametrize(("longer", "found"), [(24, None), (25, (0, 5))])
def test_a_wait_in_place_of_other_idle_time_costs_nothing(longer, found):
    assert change([0] * 5 + [50] * 5, [100] * 5 + [100 + longer] * 5) == found


def test_one_long_step_at_the_start_of_a_profiler_hides_nothing():
    steps = [400, 100, 100, 100, *[150] * 8]
    assert change([0] * 4 + [50] * 8, steps) == (0, 4)


def test_the_rise_must_stand_out_of_the_scatter():
    noisy = [0, 0, 0, 0, 90, 10, 12, 80]
    assert change(noisy) is None
    assert change([*noisy, 70, 75, 90, 70, 75, 80, 77, 60]) == (0, 7)
    assert change(noisy, thresholds=Thresholds(drift_errors=1.5)) == (0, 4)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("scatter", [0.0, 0.05])
def test_a_loader_of_several_workers_is_found_although_it_waits_in_bursts(workers, scatter):
    # One and a half times too slow: what is ready lasts for three times as many steps.
    waits = loader(workers, 150 * workers, 24 * workers, scatter=scatter)
    start, at = change(waits)
    dry = next(k for k, wait in enumerate(waits) if wait > 5)
    assert start == 0
    assert dry <= at <= dry + 2 * workers


@given(st.integers(2, 16), st.integers(0, 15), st.integers(6, 80), st.floats(0.1, 20))
def test_bursts_of_a_loader_are_no_drift(workers, phase, steps, size):
    waits = [0.1 + size * COMPUTE * ((k + phase) % workers == 0) for k in range(steps)]
    assert change(waits) is None


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("scatter", [0.0, 0.05, 0.1])
def test_a_loader_without_ready_batches_has_the_same_pace_from_the_start(workers, scatter):
    waits = loader(workers, 150 * workers, 400, scatter=scatter, seed=workers)[160:]
    captures = [waits[k : k + 40] for k in range(0, 200, 20)]
    assert [change(waits) for waits in captures] == [None] * len(captures)


def test_workers_that_start_make_no_drift():
    assert change([900, *[0] * 12]) is None
    assert change([900, 300, *[0] * 12]) is None


def test_a_queue_that_fills_and_then_runs_dry_is_found_behind_the_start():
    assert change([900, *[0] * 5, *[50] * 5]) == (1, 6)


@pytest.mark.parametrize("last", [[900], [900, 900], [900, 0.1, 900]])
def test_a_hiccup_at_the_end_is_no_drift(last):
    assert change([0.1] * 12 + last) is None


def test_a_loader_that_catches_up_is_no_drained_queue():
    assert change([50] * 8 + [0] * 8) is None


def test_a_slow_decline_is_no_drained_queue():
    assert change([5 * k for k in range(20)]) is None
    slower_device = [100 + 5 * k for k in range(20)]
    assert change([0] * 20, slower_device) is None
    assert change([1] * 10 + [2] * 10, [100] * 10 + [200] * 10) is None


def noise(kind, random, length):
    """Stationary waits that do not depend on each other."""
    return {
        "normal": lambda: np.maximum(random.normal(30, 15, length), 0),
        "half normal": lambda: np.abs(random.normal(0, 30, length)),
        "exponential": lambda: random.exponential(30, length),
        "log-normal": lambda: random.lognormal(2, 1.5, length),
        "one in two": lambda: 100 * (random.random(length) < 0.5) + random.exponential(1, length),
        "one in five": lambda: 100 * (random.random(length) < 0.2) + random.exponential(1, length),
    }[kind]()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("normal", 0.01),
        ("half normal", 0.01),
        ("exponential", 0.01),
        ("log-normal", 0.01),
        ("one in two", 0.02),
        ("one in five", 0.02),
    ],
)
def test_of_stationary_waits_hardly_any_are_taken_for_a_drift(kind, rate):
    """Below 1 % of captures, or 2 % where a coin decides whether a step waits at all."""
    random = np.random.default_rng(20240607)
    captures = [noise(kind, random, n) for n in (6, 8, 12, 20, 40) for _ in range(600)]
    alarms = sum(change(waits) is not None for waits in captures)
    assert alarms <= rate * len(captures)


waits_of_any_kind = st.lists(st.floats(0, 500), min_size=6, max_size=40)


@given(waits_of_any_kind, st.floats(0.01, 1e6))
def test_the_unit_of_time_does_not_matter(waits, factor):
    scaled = np.multiply(factor, waits)
    steps = factor * (COMPUTE + np.array(waits))
    one, other = change(waits), change(scaled, steps)
    # Rounding may decide between two splits that are equally good.
    assert one == other or None not in (one, other)


@given(st.lists(st.floats(101, 400), min_size=6, max_size=40))
def test_waits_of_the_same_size_are_no_drift_whatever_their_order(waits):
    assert change(waits) is None


def rank(waits, number=0, *, label="step {}", parts=None, **changes):
    """A rank whose used iterations wait that long for data, beside what `parts` say."""
    parts = parts or {"forward": COMPUTE}
    whole = records.rank(parts, number, steps=len(waits))
    steps, at = [], 0
    for i, wait in zip(whole.iterations, [0, *waits, 0], strict=True):
        length = (sum(parts.values()) + wait) * MS
        steps.append(
            replace(
                i,
                label=label.format(i.index),
                start_ns=at,
                end_ns=at + length,
                partition_ns=nanoseconds({**parts, "idle_data_wait": wait}),
            )
        )
        at += length
    total = {k: (v or 0) * MS * len(waits) for k, v in parts.items()}
    total |= {"idle_data_wait": sum(waits) * MS}
    window = sum(total.values())
    summary = replace(
        whole.summary,
        window_ns=window,
        partition_ns=whole.summary.partition_ns | total,
        step_ms=replace(whole.summary.step_ms, mean=window / len(waits) / MS),
    )
    return replace(whole, iterations=steps, summary=replace(summary, **changes))


DRAINED = [0] * 6 + [60] * 4
FULL = [0] * 10


def test_a_drift_says_where_and_how_much():
    found = drift.find_drift([rank(DRAINED)], THRESHOLDS)
    assert (found.rank, found.index, found.label) == (0, 7, "step 7")
    assert found.before == drift.Side(6, 100 * MS, 0)
    assert found.after == drift.Side(4, 160 * MS, 60 * MS)
    assert found.after.share == 0.375


def test_iterations_that_are_not_used_count_on_neither_side():
    mine = rank(DRAINED)
    skipped = [
        replace(i, used=False, skip_reason="capture cut") if i.index == 8 else i
        for i in mine.iterations
    ]
    found = drift.find_drift([replace(mine, iterations=skipped)], THRESHOLDS)
    assert (found.index, found.before.iterations, found.after.iterations) == (7, 6, 3)


def test_of_several_ranks_the_one_that_waits_longest_counts():
    ranks = [rank(FULL), rank([0] * 5 + [20] * 5, 1), rank(DRAINED, 2)]
    assert drift.find_drift(ranks, THRESHOLDS).rank == 2
    assert drift.find_drift(ranks[:1], THRESHOLDS) is None


def test_iterations_of_another_rank_are_found_by_the_name_of_the_step():
    found = drift.find_drift([rank(DRAINED)], THRESHOLDS)
    later = rank(FULL, 1)
    moved = [replace(i, label=f"step {i.index + 2}") for i in later.iterations]
    chosen = drift.iterations_after(replace(later, iterations=moved), found)
    assert [i.label for i in chosen] == [f"step {k}" for k in range(7, 13)]
    recurring = rank(FULL, 1, label="DataLoader")
    assert [i.index for i in drift.iterations_after(recurring, found)] == [7, 8, 9, 10]


def shares(corrected, **expected):
    assert corrected.shares == pytest.approx(
        dict.fromkeys(corrected.shares, 0) | expected, abs=1e-6
    )


def corrected_by(ranks, unprofiled_ms=None, data_wait_ms=None, together=None):
    found = drift.find_drift(ranks, THRESHOLDS)
    unprofiled = None if unprofiled_ms is None else unprofiled_ms * 1e6
    if data_wait_ms is not None:
        ranks = [replace(r, timed_wait_ms=data_wait_ms) for r in ranks]
    return correct(ranks, together, unprofiled, frozenset(), found)


def test_the_shares_are_those_after_the_queue_ran_dry():
    corrected = corrected_by([rank(DRAINED)])
    shares(corrected, compute=100 / 160, io=60 / 160)
    assert corrected.notes == [
        "prefetched batches hid the loader's speed before iteration 7: a step took 100 ms until "
        "then and 160 ms afterwards; the shares are those afterwards"
    ]


def test_a_wait_that_was_timed_without_a_profiler_is_worth_more_than_a_few_steps():
    corrected = corrected_by([rank(DRAINED)], 200, 100)
    shares(corrected, compute=0.5, io=0.5)
    assert corrected.drift is None
    assert ["fed the recorded steps from batches made before" in n for n in corrected.notes] == [
        True
    ]
    assert corrected.calibration_doubt is None


def test_an_unprofiled_step_takes_the_host_out_of_the_part_after_the_queue():
    corrected = corrected_by([rank(DRAINED, parts={"forward": 100, "idle_host": 40})], 170)
    shares(corrected, compute=100 / 170, io=60 / 170, overhead=10 / 170)


def test_other_ranks_count_from_the_same_step_on():
    waiting = rank([0] * 10, 1, parts={"forward": 100, "communication": 30})
    steps = [
        replace(
            i,
            partition_ns=nanoseconds({"forward": 100, "communication": 10 + 60 * (i.index > 6)}),
            skew_exposed_ns=60 * MS * (i.index > 6),
        )
        for i in waiting.iterations
    ]
    late = rank(DRAINED, parts={"forward": 100, "communication": 10})
    together = records.run(skew_causes={"io": 1.0, "overhead": 0.0, "compute": 0.0, "other": 0.0})
    ranks = [late, replace(waiting, iterations=steps)]
    shares(
        corrected_by(ranks, together=together),
        compute=100 / 170,
        communication=10 / 170,
        io=60 / 170,
    )


def judged(*ranks, **more):
    return judge(ranks, None, records.quality(), frozenset(), None, THRESHOLDS, **more)


def test_the_verdict_is_that_of_the_run_behind_the_queue():
    waits = [0] * 16 + [60] * 4
    mine = rank(waits)
    verdict = judged(mine)
    assert mine.summary.partition_ns["idle_data_wait"] / mine.summary.window_ns < 0.11
    assert verdict.bound == "io"
    assert verdict.headline.startswith("38 % of each 160 ms step")
    assert "waits 60.0 ms per step for data" in " ".join(verdict.reasons)
    terms = {t.name: t.value for t in verdict.confidence_terms}
    assert (terms["prefetch-drained"], terms["few-iterations"]) == (-0.1, -0.05)
    assert judged(replace(mine, timed_wait_ms=0.0)).bound == "compute"


def found(name, *ranks, workload=None):
    good = records.quality()
    evidence = findings.Evidence(
        ranks, None, good, judged(*ranks), THRESHOLDS, frozenset(), workload
    )
    return next(f for f in findings.find_all(evidence) if f.id == name)


def drained(*ranks, **more):
    return found("prefetch-drained", *ranks, **more)


@pytest.mark.parametrize(("wait", "status"), [(6, "warn"), (24, "warn"), (25, "fail")])
def test_a_drained_queue_is_graded_by_the_wait_behind_it(wait, status):
    finding = drained(rank([0] * 6 + [wait] * 4))
    assert (finding.status, finding.saving_ms_per_step) == (status, None)


def test_the_finding_says_where_and_what_it_does_to_the_throughput():
    finding = drained(rank(DRAINED), workload={"samples_per_step": 64})
    assert finding.evidence == [
        "from iteration 7 (step 7) on, a step waits 60.0 ms for data (37.5 % of the step), before "
        "it 0 ms",
        "a step takes 100 ms in the 6 iterations before and 160 ms in the 4 after",
        "640.0 samples/s before, 400.0 after",
    ]
    assert "Start profiling later" in finding.advice


@pytest.mark.parametrize("workload", [None, {}, {"samples_per_step": "many"}, {"batch_size": 8}])
def test_without_the_size_of_a_batch_there_is_no_throughput(workload):
    assert len(drained(rank(DRAINED), workload=workload).evidence) == 2


def test_of_several_ranks_the_finding_names_one():
    assert "a step on rank 1 waits" in drained(rank(FULL), rank(DRAINED, 1)).evidence[0]


def test_a_steady_capture_passes():
    assert drained(rank(FULL)).status == "pass"
    assert drained(rank([60] * 10)).status == "pass"


def test_too_few_iterations_answer_nothing_and_accuse_nobody():
    finding = drained(rank([0] * 5))
    assert (finding.status, finding.evidence) == (
        "inconclusive",
        ["5 used iterations, but finding a change takes 6"],
    )


def test_where_no_wait_can_be_seen_no_queue_can():
    mine = rank(FULL)
    parts = mine.summary.partition_ns | {"idle_data_wait": None}
    blind = replace(mine, summary=replace(mine.summary, partition_ns=parts))
    assert drained(blind).status == "not-applicable"
    assert drained(records.rank({"forward": 1}, marked=False)).status == "not-applicable"


def test_the_wait_for_data_is_not_passed_for_the_time_that_the_queue_lasted():
    finding = found("data-wait", rank([0] * 40 + [30] * 4))
    assert finding.status == "fail"
    assert "30.0 ms (23.1 %) once the loader's queue is empty" in finding.evidence


COMM = 1_000


def trained(waits, number=0, *, others=None):
    """A trace whose steps wait for data, then compute 10 000 ns, then reduce gradients.

    Args:
        others: waits of the rank that is waited for in the collective, where that is longer.
    """
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=others and 2)
    at = 0
    for k, wait in enumerate(waits):
        skew = max((others[k] if others else wait) - wait, 0)
        script.range(f"step {k}", at, at + wait + skew + 12_000)
        script.range("data_loading", at, at + wait)
        at += wait
        script.range("forward", at, at + 3_000)
        script.op("kernel", at + 200, at + 10_200, (at + 100, at + 110))
        if others:
            begin = at + 10_200
            script.op("comm", begin, begin + COMM + skew, (at + 120, at + 130), stream=COMM_STREAM)
        at += skew + 12_000
    return memory.trace(script.build())


WAITS = [0] * 12 + [12_000] * 5


def test_a_trace_with_a_drained_queue_is_io_bound():
    report = traceprobe.analyze(trained(WAITS))
    (finding,) = (f for f in report.findings if f.id == "prefetch-drained")
    (mine,) = report.ranks
    assert finding.status == "fail"
    # The wait for batch 12 ends window 11, and the last window has no end.
    assert finding.evidence[0].startswith("from iteration 11 (step 11) on")
    assert mine.summary.share["io"] == pytest.approx(5 * 12 / (16 * 12 + 5 * 12), abs=1e-6)
    assert report.verdict.shares["io"] == pytest.approx(0.5)
    assert report.verdict.bound == "io"


def test_a_rank_whose_queue_runs_dry_makes_the_whole_run_io_bound():
    ready = [0] * len(WAITS)
    report = traceprobe.analyze([trained(WAITS, 0, others=ready), trained(ready, 1, others=WAITS)])
    (finding,) = (f for f in report.findings if f.id == "prefetch-drained")
    assert "on rank 0" in finding.evidence[0]
    assert (report.run.straggler_rank, report.run.straggler_cause) == (0, "io")
    assert report.verdict.bound == "io"
    assert report.verdict.shares["communication"] <= 0.05


@pytest.mark.parametrize("waits", [[12_000] * 17, [0] * 17, [0, 24_000] * 9])
def test_a_trace_with_a_steady_loader_has_no_drift(waits):
    report = traceprobe.analyze(trained(waits))
    (finding,) = (f for f in report.findings if f.id == "prefetch-drained")
    assert finding.status in ("pass", "not-applicable")
    assert not any("queue" in reason for reason in report.verdict.reasons)


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 12), st.integers(4, 12), st.integers(2_000, 60_000))
def test_a_trace_is_cut_where_its_queue_ends(ready, waiting, wait):
    report = traceprobe.analyze(trained([0] * (ready + 1) + [wait] * waiting))
    assert report.verdict.shares["io"] == pytest.approx(wait / (wait + 12_000), abs=1e-5)

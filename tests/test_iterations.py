"""Iterations: which ops belong to one, where its window begins and ends, which are left out."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import UNSET

import traceprobe
from tests.builders import memory
from tests.builders.scenario import AUTOGRAD, PID, Script
from traceprobe.errors import UsageError
from traceprobe.model.codes import UNKNOWN, Call, Kind
from traceprobe.model.events import HOST_CALLS, frame
from traceprobe.model.taxonomy import PARTITION
from traceprobe.timeline import iterations
from traceprobe.timeline.intervals import Intervals, union
from traceprobe.timeline.step_markers import NEVER, StepMarker

PITCH, LENGTH = 1_000, 500


LAST = "the last iteration: the next is not recorded"


def array(values):
    return np.array(values, dtype=np.int64)


def marker_at(starts, ends=None, kind="range"):
    """Iterations that begin at these times; the last one ends with the capture unless said."""
    starts = array(starts)
    ends = np.append(starts[1:], NEVER) if ends is None else array(ends)
    return StepMarker(kind, "", starts, ends, ("",) * len(starts), 0, None, 1.0)


def steps(count=6, *, lag=200, inside=900):
    """One kernel a step: launched 100 into the step, started `lag` after the step's begin."""
    script = Script()
    for k in range(count):
        at = k * PITCH
        script.range(f"step {k}", at, at + inside)
        script.op("kernel", at + lag, at + lag + LENGTH, (at + 100, at + 110))
    return script


def whole_report(script, **options):
    trace = memory.trace(script.build())
    return traceprobe.analyze(trace, traceprobe.Options(**options))


def analyze(script, **options):
    return whole_report(script, **options).ranks[0]


def windows_of(rank):
    """Window of each iteration that has one, on the clock of the script."""
    return {i.index: (i.start_ns, i.end_ns) for i in rank.iterations if i.partition_ns}


def reasons_of(rank):
    return {i.index: i.skip_reason for i in rank.iterations if not i.used}


def test_a_launch_belongs_to_the_last_step_that_had_begun():
    found = iterations.iteration_of_launches(
        marker_at([0, 10, 20]), array([-5, 0, 9, 10, 25]), np.ones(5, dtype=bool)
    )
    assert found.tolist() == [UNKNOWN, 0, 0, 1, 2]


def test_without_a_launch_an_op_belongs_to_no_iteration():
    found = iterations.iteration_of_launches(
        marker_at([-9, 10]), array([UNKNOWN]), np.zeros(1, dtype=bool)
    )
    assert found.tolist() == [UNKNOWN]


def test_a_launch_between_the_step_ranges_belongs_to_the_step_before():
    script = steps(inside=300)
    script.op("comm", 2_800, 2_900, (2_700, 2_710))
    assert [i.collectives for i in analyze(script).iterations] == [0, 0, 1, 0, 0, 0]


def test_a_launch_of_any_thread_belongs_to_the_step():
    script = steps().op("comm", 2_800, 2_900, (2_700, 2_710), thread=AUTOGRAD)
    assert [i.collectives for i in analyze(script).iterations] == [0, 0, 1, 0, 0, 0]


def test_a_collective_without_a_launch_belongs_to_no_step():
    script = steps().op("comm", 2_800, 2_900)
    assert [i.collectives for i in analyze(script).iterations] == [0] * 6


@pytest.mark.parametrize("lag", [200, 1_300, 2_300])
def test_windows_follow_the_launches_however_far_the_gpu_lags(lag):
    script = steps(lag=lag).op("comm", lag + 1_600, lag + 1_700, (1_150, 1_160), stream=20)
    rank = analyze(script)
    assert windows_of(rank) == {k: (k * PITCH + lag, (k + 1) * PITCH + lag) for k in range(5)}
    assert [i.collectives for i in rank.iterations] == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "opens"),
    [("memset", True), ("comm", True), ("h2d", False), ("d2d", False), ("d2h", False)],
)
def test_a_window_begins_with_the_first_kernel_or_memset(kind, opens):
    script = steps().op(kind, 2_150, 2_160, (2_050, 2_055))
    begin = 2_150 if opens else 2_200
    windows = windows_of(analyze(script))
    assert (windows[1][1], windows[2][0]) == (begin, begin)


def test_an_iteration_without_gpu_work_leaves_its_time_to_the_one_before():
    script = steps()
    del script.ops[2]
    rank = analyze(script)
    assert windows_of(rank)[1] == (1_200, 3_200)
    assert 2 not in windows_of(rank)
    assert reasons_of(rank)[2] == "no GPU work"


def test_a_window_that_would_begin_before_its_predecessor_is_joined_to_it():
    kind = array([Kind.KERNEL] * 5)
    t0 = array([100, 300, 200, 250, 400])
    found = iterations.gpu_windows(array([0, 1, 2, 3, 4]), kind, t0, t0 + 50, marker_at(range(5)))
    assert found.index.tolist() == [0, 1, 4]
    assert found.edges.tolist() == [100, 300, 400, 450]


def test_without_ops_of_iterations_there_are_no_windows():
    kind = array([Kind.KERNEL, Kind.H2D])
    found = iterations.gpu_windows(
        array([UNKNOWN, 0]), kind, array([0, 5]), array([3, 9]), marker_at([0, 1])
    )
    assert (found.index.tolist(), found.edges.tolist()) == ([], [])


def calls(*rows):
    """Host calls as (time, what it asks, whether a GPU row answers)."""
    t0, asks, recorded = zip(*rows, strict=True)
    plain = {c: [0] * len(rows) for c in HOST_CALLS}
    return frame(
        HOST_CALLS,
        {**plain, "t0": t0, "call": [int(a) for a in asks], "recorded": recorded}
        | {"blocking": [False] * len(rows)},
    )


def test_coverage_counts_the_launches_of_each_step_that_have_a_gpu_row():
    rows = calls(
        *((-1, Call.LAUNCH, True), (0, Call.LAUNCH, True), (5, Call.GRAPH_LAUNCH, False)),
        *((9, Call.COPY, False), (10, Call.COPY, True), (11, Call.SYNC, False)),
        *((12, Call.OTHER, False), (13, Call.OTHER, True)),
    )
    asked, recorded = iterations.launch_coverage(rows, marker_at([0, 10]))
    assert (asked.tolist(), recorded.tolist()) == ([3, 2], [1, 2])


def test_a_memset_without_a_row_is_no_evidence_of_a_cut_capture():
    rows = calls((0, Call.MEMSET, False), (1, Call.MEMSET, True), (2, Call.LAUNCH, True))
    asked, recorded = iterations.launch_coverage(rows, marker_at([0]))
    assert (asked.tolist(), recorded.tolist()) == ([2], [2])


@pytest.mark.parametrize(("rows", "used"), [(99, True), (98, False)])
def test_an_iteration_whose_coverage_is_below_99_percent_is_left_out(rows, used):
    script = steps()
    for i in range(99):
        launch = (2_300 + i, 2_301 + i)
        if i < rows - 1:
            script.op("kernel", 2_400 + i, 2_401 + i, launch)
        else:
            script.call("cudaLaunchKernel", *launch)
    cut = analyze(script).iterations[2]
    assert (cut.used, cut.coverage) == (used, rows / 100)
    assert used or cut.skip_reason == "capture cut: 98.0 % of its launches have a GPU row"


def test_an_iteration_left_out_still_has_its_partition():
    script = steps().call("cudaLaunchKernel", 2_300, 2_301)
    rank = analyze(script)
    assert (2 in windows_of(rank), 2 in reasons_of(rank)) == (True, True)
    assert rank.summary.iterations_used == 4
    assert rank.summary.window_ns == 4 * PITCH


def test_the_last_iteration_is_left_out_where_three_others_count():
    rank = analyze(steps())
    assert reasons_of(rank) == {5: LAST}
    assert 5 not in windows_of(rank)


@pytest.mark.parametrize(
    ("count", "used"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 7)], ids=lambda n: str(n)
)
def test_the_last_iteration_counts_where_fewer_than_three_others_do(count, used):
    rank = analyze(steps(count))
    assert rank.summary.iterations_used == used
    assert [i.used for i in rank.iterations] == [True] * used + [False] * (count - used)


@pytest.mark.parametrize(("lag", "end"), [(200, 2_900), (600, 3_100)])
def test_a_last_window_ends_where_its_range_and_its_last_op_have_ended(lag, end):
    assert windows_of(analyze(steps(3, lag=lag)))[2][1] == end


def waiting(count, late=300, first=300):
    """Steps that begin with a wait of so long for a batch, and its copy; a kernel ends them."""
    script = Script()
    for k in range(count):
        at, wait = k * PITCH, late if k else first
        script.range(f"step {k}", at, at + PITCH)
        copy = at + wait, at + wait + 50
        script.op("h2d", *copy, (at + wait - 10, at + wait - 5), bytes=1_000)
        script.op("kernel", at + wait + 50, at + PITCH, (at + wait + 10, at + wait + 15))
    return script


@pytest.mark.parametrize("count", [2, 3])
def test_few_windows_begin_with_what_their_own_iterations_begin_with(count):
    """The last would have no wait and no copy, that of the next being beyond the capture."""
    rank = analyze(waiting(count))
    assert windows_of(rank) == {k: (k * PITCH, (k + 1) * PITCH) for k in range(count)}
    assert rank.summary.partition_ns["h2d"] == 50 * count
    assert rank.summary.window_ns == PITCH * count
    assert sum(rank.summary.partition_ns[name] or 0 for name in PARTITION) == PITCH * count


def test_the_first_of_few_windows_begins_no_earlier_than_any_other():
    """It waits while the program is set up."""
    assert windows_of(analyze(waiting(3, first=901, late=250)))[0][0] == 951 - 300


def test_few_windows_begin_once_the_device_has_done_all_that_was_launched_before():
    script = Script()
    for k in range(3):
        at = k * PITCH
        script.range(f"step {k}", at, at + PITCH)
        script.op("kernel", at + 400, at + 1_100, (at + 390, at + 395))
    assert windows_of(analyze(script)) == {0: (100, 1_100), 1: (1_100, 2_100), 2: (2_100, 3_100)}


def test_iterations_that_were_cut_are_not_needed_and_the_others_begin_earlier():
    script = waiting(4).call("cudaLaunchKernel", 300, 301)
    assert windows_of(analyze(script))[3] == (3_000, 4_000)


def test_a_wait_that_only_later_iterations_show_moves_no_window():
    """The first is before the first launch, where nothing tells it from other work of the host."""
    ms, script = 1_000_000, Script()
    for k in range(3):
        at = k * 1_000 * ms
        script.range(f"step {k}", at, at + 1_000 * ms)
        copy = at + 300 * ms, at + 350 * ms
        script.op("h2d", *copy, (at + 290 * ms, at + 295 * ms), bytes=100_000_000)
        for number in range(13):
            begin = at + (350 + 50 * number) * ms
            launch = at + 296 * ms + number * 100_000
            script.op("kernel", begin, begin + 50 * ms, (launch, launch + 50_000))
        script.call("cudaDeviceSynchronize", at + 300 * ms, at + 1_000 * ms)
    rank = analyze(script)
    assert [i.partition_ns["idle_data_wait"] for i in rank.iterations] == [290 * ms, 290 * ms, 0]


def test_an_only_window_begins_with_its_copies():
    """What comes before them, from 0 to 300, may be the profiler that starts."""
    assert windows_of(analyze(waiting(1))) == {0: (300, 1_000)}


def test_an_only_window_does_not_begin_with_a_number_that_is_copied():
    script = waiting(1)
    script.op("h2d", 20, 25, (5, 8), bytes=8)
    assert windows_of(analyze(script)) == {0: (300, 1_000)}


def test_an_only_window_begins_with_its_wait_for_data():
    script = waiting(1).range("data_loading", 120, 280)
    rank = analyze(script)
    assert windows_of(rank) == {0: (120, 1_000)}
    assert rank.summary.partition_ns["idle_data_wait"] == 160


def test_an_only_window_begins_no_earlier_than_its_range_or_than_earlier_work_has_ended():
    waits = waiting(1).range("data_loading", -200, 280)
    assert windows_of(analyze(waits)) == {0: (200, 1_200)}  # time zero is that of the wait
    busy = waits.op("kernel", -100, 260, (-150, -140))
    assert windows_of(analyze(busy)) == {0: (460, 1_200)}


def test_an_only_window_has_no_part_in_workers_that_start():
    script = Script()
    script.range("step 0", 0, 10 * PITCH).range("data_loading", 100, 9_000)
    script.op("kernel", 9_200, 10 * PITCH, (9_100, 9_110))
    ((begin, end),) = windows_of(analyze(script)).values()
    assert end - begin == 10 * PITCH - 9_200


def test_steps_that_would_take_no_time_keep_their_windows():
    script = Script()
    for k in range(2):
        script.range(f"step {k}", k * PITCH, k * PITCH + 500)
        ends = k * PITCH + 400 * k
        script.op("kernel", k * PITCH, ends, (k * PITCH, k * PITCH + 1))
    assert windows_of(analyze(script)) == {0: (0, 1_000), 1: (1_000, 1_500)}


def test_iterations_of_which_only_loader_threads_launch_are_not_played():
    loader, script = PID + 99, Script()
    script.range("[DALI] pipeline", 0, 5, thread=loader)
    for k in range(6):
        at = k * PITCH
        thread = loader if k else PID
        script.range(f"step {k}", at, at + PITCH)
        for number in range(4):
            begin = at + 200 + 100 * number
            script.op("kernel", begin, begin + 90, (begin - 50, begin - 45), thread=thread)
    rank = analyze(script)
    assert rank.summary.iterations_used == 5
    assert rank.replay is UNSET


@pytest.mark.parametrize(
    ("steps", "begin"),
    [
        (waiting(4), 350),  # the last one is not needed
        (waiting(3, late=0), 350),  # a twentieth, with the copy
    ],
    ids=["many", "little"],
)
def test_other_windows_begin_with_a_kernel(steps, begin):
    first, *_ = windows_of(analyze(steps)).values()
    assert first[0] == begin


def test_iterations_that_were_cut_do_not_replace_the_last_one():
    script = steps(4).call("cudaLaunchKernel", 300, 301)
    assert [i.used for i in analyze(script).iterations] == [False, True, True, True]


def test_marks_without_length_do_not_say_when_the_last_iteration_ends():
    script = Script()
    for k in range(3):
        script.range(f"step {k}", k * PITCH, k * PITCH, form="mark")
        script.op("kernel", k * PITCH + 200, k * PITCH + 700, (k * PITCH + 100, k * PITCH + 110))
    assert reasons_of(analyze(script)) == {2: "the last iteration has no end"}


def test_the_last_window_has_no_end_though_a_further_step_begins_without_gpu_work():
    rank = analyze(steps().range("step 6", 6_000, 6_900))
    assert 5 not in windows_of(rank)
    assert rank.iterations[5].launches == 1
    assert rank.iterations[5].skip_reason == LAST
    assert rank.iterations[6].skip_reason == "no GPU work"


def skipped(
    lengths, collectives=None, covered=None, before=None, waited=None, asked=None, kind="range"
):
    """Reasons for windows of these lengths; the last one is that of the last marker."""
    count = len(lengths)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    found = iterations.skip_reasons(
        iterations.GpuWindows(np.arange(count), edges, True),
        marker_at(range(count), range(1, count + 1), kind),
        covered or [1.0] * count,
        array(asked or [1] * count),
        array(collectives or [0] * count),
        before or [0.0] * count,
        array(waited or [0] * count),
    )
    return [LAST if reason == LAST else reason and reason.split(":")[0] for reason in found]


LATER = [(210, 220), (310, 320), (410, 420)]


@pytest.mark.parametrize(
    ("waits", "known"),
    [
        ([(50, 60), (110, 180), *LATER], [60, 10, 10, 10]),  # the device works until 120
        ([(110, 180), *LATER], [0, 10, 10, 10]),  # the first of all: workers may start
        ([(50, 60), (110, 120), (120, 180), *LATER], [0, 10, 10, 10]),  # gone through once
        ([(50, 60), (90, 140), *LATER], [20, 10, 10, 10]),  # from the step before into this window
        ([], [0, 0, 0, 0]),
    ],
)
def test_a_wait_tells_of_a_slow_loader_once_it_runs(waits, known):
    edges, busy = array([100, 200, 300, 400, 500]), Intervals(array([100]), array([120]))
    each = Intervals(array([t0 for t0, _ in waits]), array([t1 for _, t1 in waits]))
    assert iterations.waits_of_running(edges, each, busy).tolist() == known


@pytest.mark.parametrize(("waited", "used"), [(0, False), (20, False), (21, True), (25, True)])
def test_a_first_iteration_that_is_long_since_it_waits_for_a_running_loader_counts(waited, used):
    reasons = skipped([51, 10, 10, 10, 10], waited=[waited, 0, 0, 0, 0])
    assert (reasons[0] is None) is used


@pytest.mark.parametrize(
    ("lengths", "outlier"),
    [
        ([31, 10, 10, 10, 10], True),
        ([30, 10, 10, 10, 10], False),
        ([31, 9, 11, 11, 11], False),
        ([31, 10, 31, 10, 10, 10], False),
        ([31, 10, 32, 10, 10, 10], False),
        ([10, 10, 99, 10, 10], False),
        ([99, 10, 10, 5], False),
    ],
    ids=[
        "longer than three medians and than every other",
        "just three medians",
        "longer than three times the shortest",
        "another is as long",
        "stalls come in bursts",
        "a long one that is not the first",
        "too few to tell",
    ],
)
def test_a_first_iteration_is_warm_up_only_if_nothing_else_is_as_long(lengths, outlier):
    expected = ["warm-up" if outlier else None, *[None] * (len(lengths) - 2), LAST]
    assert skipped(lengths) == expected


@pytest.mark.parametrize(
    ("collectives", "outlier"),
    [
        ([1, 8, 8, 8, 8, 0], True),
        ([8, 8, 8, 8, 8, 0], False),
        ([1, 8, 7, 8, 8, 0], False),
        ([1, 8, 8, 0], False),
    ],
    ids=["unlike all others", "like all others", "the others differ too", "too few to tell"],
)
def test_a_first_iteration_with_other_collectives_than_all_others_is_warm_up(collectives, outlier):
    found = skipped([10] * len(collectives), collectives)
    assert found[0] == ("warm-up" if outlier else None)
    assert found[1:] == [None] * (len(collectives) - 2) + [LAST]


@pytest.mark.parametrize(
    ("asked", "kind", "cut"),
    [
        ([168, 408, 410, 408, 408], "kernels", True),
        ([204, 408, 410, 408, 408], "kernels", False),
        ([168, 408, 410, 300, 408], "kernels", False),
        ([168, 408, 410, 408, 408], "range", False),
        ([168, 408, 408], "kernels", False),
    ],
    ids=["less than half", "half", "the others differ, too", "it is marked", "too few to tell"],
)
def test_a_first_iteration_that_kernels_alone_mark_may_have_begun_before_the_capture(
    asked, kind, cut
):
    found = skipped([10] * len(asked), asked=asked, kind=kind)
    assert found[0] == ("capture cut" if cut else None)
    assert found[1:-1] == [None] * (len(asked) - 2)


BEGUN = "begins with work launched before the capture"


@pytest.mark.parametrize(
    ("before", "left_out"),
    [
        ([0.05, 0, 0, 0, 0], 1),
        ([0.049, 0, 0, 0, 0], 0),
        ([0.9, 0.02, 0, 0.01, 0, 0], 2),
        ([0.9, 0.3, 0, 0, 0], 0),
        ([0.9, 0, 0.011, 0, 0, 0], 0),
        ([0, 0.9, 0, 0, 0, 0], 0),
        ([0.9] * 6, 0),
    ],
    ids=[
        "a part of the first one",
        "a little of it",
        "the GPU is two steps behind",
        "two others remain",
        "rows are missing elsewhere, too",
        "not from the first one on",
        "no launches are recorded",
    ],
)
def test_first_iterations_with_work_of_others_before_the_capture_are_left_out(before, left_out):
    rest = [None] * (len(before) - left_out - 1)
    assert skipped([10] * len(before), before=before) == [*[BEGUN] * left_out, *rest, LAST]


def test_work_without_launch_rows_is_measured_by_busy_time():
    windows = iterations.GpuWindows(np.arange(2), array([100, 200, 300]), True)
    t0, t1 = array([50, 120, 150, 240]), array([140, 130, 170, 250])
    launched = np.array([False, False, True, True])
    assert iterations.launched_before(
        windows, union(t0, t1), union(t0[launched], t1[launched])
    ) == [40 / 60, 0.0]


def test_a_step_that_the_gpu_begins_behind_work_of_another_is_not_used():
    script = steps(7)
    script.op("kernel", 100, 900, stream=8)  # launched before the capture: no call is recorded
    rank = analyze(script)
    assert reasons_of(rank) == {0: f"{BEGUN}: 28.6 % of the GPU's time in it", 6: LAST}
    assert rank.summary.iterations_used == 5
    told = {finding.id: finding for finding in whole_report(script).findings}["unused-iterations"]
    assert f"1 left out: {BEGUN}" in told.evidence
    assert "Synchronise before the profiler starts." in told.advice


def test_warm_up_is_the_first_iteration_that_can_be_used():
    covered = [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert skipped([99, 50, 10, 10, 10, 10, 10], covered=covered) == [
        *["capture cut", "warm-up", None, None, None, None, LAST]
    ]


def test_the_last_iteration_may_be_cut_as_well():
    assert skipped([10] * 4, covered=[1.0, 1.0, 1.0, 0.5]) == [None, None, None, "capture cut"]


def test_an_iteration_without_launches_has_no_coverage_to_miss():
    assert skipped([10] * 5, covered=[None] * 5) == [None] * 4 + [LAST]


def test_where_no_iteration_can_be_used_all_windows_are_summarised():
    script = steps(2).call("cudaLaunchKernel", 300, 301).call("cudaLaunchKernel", 1_300, 1_301)
    summary = analyze(script).summary
    assert (summary.iterations_used, summary.step_ms) == (0, None)
    assert summary.window_ns == PITCH


def test_where_no_iteration_has_a_window_the_whole_capture_is_summarised():
    script = Script().op("kernel", 3_100, 3_600).op("kernel", 100, 200)
    for k in range(4):
        script.range(f"step {k}", k * PITCH, k * PITCH + 900)
    rank = analyze(script)
    assert reasons_of(rank) == dict.fromkeys(range(4), "no GPU work")
    assert rank.summary.window_ns == 3_500


def test_without_a_marker_the_whole_capture_is_one_window():
    script = Script().op("kernel", 50, 90, (0, 9)).op("kernel", 120, 150, (100, 105))
    rank = analyze(script)
    assert (rank.step_marker, rank.iterations) == (None, [])
    assert rank.summary.window_ns == 100


def cycles(gap=4):
    """Two cycles of a profiler with three recorded steps each, and work that runs on after each."""
    script = Script()
    for number, at in enumerate([0, 1, 2, 3 + gap, 4 + gap, 5 + gap]):
        number += gap * (number > 2)
        begin = at * PITCH
        script.range(f"ProfilerStep#{number}", begin, begin + 900)
        script.op("kernel", begin + 200, begin + 700, (begin + 100, begin + 110))
    return script


def test_a_pause_of_the_profiler_belongs_to_no_iteration():
    rank = analyze(cycles())
    assert windows_of(rank)[2] == (2_200, 2_900)  # until its range ends
    assert windows_of(rank)[3] == (7_200, 8_200)
    assert rank.summary.iterations_used == 5
    assert rank.summary.window_ns == 4 * PITCH + 700
    assert sum(i.launches for i in rank.iterations) == 6


def test_an_iteration_before_a_pause_ends_with_its_last_op():
    script = cycles().op("comm", 2_700, 4_400, (2_600, 2_610))
    assert windows_of(analyze(script))[2] == (2_200, 4_400)


def test_what_is_launched_in_a_pause_belongs_to_no_iteration():
    script = cycles().op("comm", 5_000, 5_100, (4_900, 4_910))
    rank = analyze(script)
    assert [i.collectives for i in rank.iterations] == [0] * 6
    assert windows_of(rank)[2] == (2_200, 2_900)


def test_work_that_runs_on_into_the_next_iteration_leaves_no_pause():
    script = cycles().op("comm", 2_700, 7_500, (2_600, 2_610), stream=20)
    assert windows_of(analyze(script))[2] == (2_200, 7_200)


def test_steps_limit_the_summary_and_leave_the_rest_visible():
    rank = analyze(steps(8), steps=(2, 5))
    assert [i.index for i in rank.iterations if i.used] == [2, 3, 4]
    assert reasons_of(rank) == dict.fromkeys([0, 1, 5, 6], "outside of --steps") | {7: LAST}
    assert rank.summary.window_ns == 3 * PITCH


def test_steps_that_leave_nothing_are_an_error_that_names_what_there_is():
    with pytest.raises(UsageError, match=r"7:9 leaves no usable iteration; usable are 0, 1, 2, 3"):
        analyze(steps(5), steps=(7, 9))

"""Why the GPU idled: each cause, their order, and whose thread counts.

Most tests lay out one gap, [100, 1000): kernel A ends at 100, kernel B starts at 1000.
"""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import memory
from tests.builders.scenario import AUTOGRAD, PID, Script
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.taxonomy import IDLE_CAUSES
from traceprobe.timeline import idle, phases
from traceprobe.timeline.intervals import intersect, merge, union
from traceprobe.timeline.process_timeline import process_timeline

WORKER = 1099
LATENCY = {"idle_latency": [(900, 1_000)]}
"""What follows a launch at 900."""


def gap(launch=(900, 910), *, thread=PID, script=None):
    """Kernels A and B; B's launch, and the thread that made it."""
    script = script or Script()
    script.op("kernel", 0, 100, (-50, -40))
    return script.op("kernel", 1_000, 1_100, launch, thread=thread)


def prepare(script, clock=0):
    trace = memory.trace(script.build().shifted(clock))
    return process_timeline(trace, PID, None, phases.compile_phase_names({}))


def gaps_of(ready, until=None):
    """The gaps until the last op ends, or until a later time."""
    first, last = int(ready.ops["t0"].min()), int(ready.ops["t1"].max())
    account = first, last if until is None else until
    return idle.find_gaps(ready.ops, account, ready.host.step_thread)


def rows_of(intervals):
    return list(zip(intervals.t0.tolist(), intervals.t1.tolist(), strict=True))


def causes(script):
    """Each cause that occurs, with its intervals; inferred waits are data waits, too."""
    ready = prepare(script)
    found = idle.idle_causes(gaps_of(ready), ready.host, ready.loaders)
    return {cause: rows_of(part) for cause, part in found.items() if len(part.t0)}


def test_what_ran_ahead_of_the_gpu_waits_for_nothing_but_latency():
    assert causes(gap((50, 60))) == {"idle_latency": [(100, 1_000)]}
    assert causes(gap((100, 110))) == {"idle_latency": [(100, 1_000)]}


def test_before_a_late_launch_the_host_is_late_and_after_it_there_is_latency():
    assert causes(gap((700, 710))) == {
        "idle_host": [(100, 700)],
        "idle_latency": [(700, 1_000)],
    }


def test_a_launch_that_began_after_its_kernel_leaves_no_latency():
    assert causes(gap((1_050, 1_060))) == {"idle_host": [(100, 1_000)]}


US, MS = 1_000, 1_000_000


def launched(launch, starts, script=None):
    """A kernel until 100, and one that starts later, launched by a call."""
    script = script or Script()
    script.op("kernel", 0, 100, (-50, -40))
    return script.op("kernel", starts, starts + 100, launch)


def launches(latency):
    """Launches to an idle device, which all begin so much later."""
    script = Script()
    for at in (-40 * MS, -30 * MS, -20 * MS, -10 * MS):
        script.op("kernel", at + latency, at + latency + US, (at, at + 10))
    return script


def held(script):
    """What holds up the device, as intervals; all of it is latency."""
    ready = prepare(script)
    account = int(ready.ops["t0"].min()), int(ready.ops["t1"].max())
    gaps = idle.find_gaps(ready.ops, account, ready.host.step_thread)
    found = idle.held_up(gaps)
    latency = idle.idle_causes(gaps, ready.host, ready.loaders)["idle_latency"]
    assert rows_of(intersect(found, latency)) == rows_of(found)
    return rows_of(found)


def test_what_was_launched_in_time_and_starts_a_millisecond_late_is_held_up():
    assert held(launched((50, 60), 100 + MS)) == [(100, 100 + MS)]
    assert held(launched((50, 60), 99 + MS)) == []
    assert causes(launched((50, 60), 100 + MS)) == {"idle_latency": [(100, 100 + MS)]}


def test_until_its_call_returns_a_launch_is_the_hosts():
    assert held(launched((200, 300), 300 + MS, launches(5 * US))) == [(300, 300 + MS)]
    assert held(launched((200, 300), 299 + MS, launches(5 * US))) == []


def test_what_a_long_call_sets_up_may_be_late_by_as_much():
    assert held(launched((0, 3 * MS), 6 * MS - 1)) == []
    assert held(launched((0, 3 * MS), 6 * MS)) == [(3 * MS, 6 * MS)]


def test_where_all_launches_are_slow_or_clocks_differ_a_late_start_is_latency():
    late = 100 + 10 * MS
    assert held(launched((50, 60), late, launches(501 * US))) == []
    assert held(launched((50, 60), late, launches(500 * US))) == [(100, late)]


def test_a_launch_of_which_an_op_has_run_has_reached_the_device_however_slow_launches_are():
    script = launches(900 * US)
    script.op("kernel", 0, 100, (-50, -40), correlation=99, api="cudaGraphLaunch", graph=True)
    script.op("kernel", 200, 300, (-50, -40), correlation=99, api="cudaGraphLaunch", graph=True)
    late = 300 + 2 * MS
    script.op("kernel", late, late + 9, (-50, -40), correlation=99, graph=True)
    assert held(script) == [(300, late)]


def test_beside_another_device_of_the_process_a_late_start_may_wait_for_that():
    script = launched((50, 60), 100 + 2 * MS)
    assert analyze(script).summary.host.held_idle_ns == 2 * MS
    script.op("kernel", 0, 100, (-30, -20), device=1)
    assert analyze(script).summary.host.held_idle_ns == 0


def test_a_gap_says_that_its_work_was_launched_in_time():
    found = analyze(launched((50, 60), 2 * MS)).gaps[0]
    assert (found.cause, found.evidence) == (
        "idle_latency",
        "launched in time, and nothing recorded held it up",
    )


def test_without_a_launch_row_a_gap_is_unexplained():
    script = gap(None).range("data_loading", 200, 500).call("cudaStreamSynchronize", 500, 600)
    assert causes(script) == {"idle_unexplained": [(100, 1_000)]}


def test_the_order_is_profiler_data_sync_host():
    script = gap().range("data_loading", 200, 500)
    script.overhead("Buffer Flush", 100, 300).call("cudaDeviceSynchronize", 400, 700)
    assert causes(script) == LATENCY | {
        "idle_profiler": [(100, 300)],
        "idle_data_wait": [(300, 500)],
        "idle_sync": [(500, 700)],
        "idle_host": [(700, 900)],
    }


def test_what_the_host_does_after_the_launch_does_not_matter():
    script = gap((300, 310)).range("data_loading", 300, 900)
    script.overhead("Buffer Flush", 320, 400).call("cudaDeviceSynchronize", 400, 1_200)
    assert causes(script) == {"idle_host": [(100, 300)], "idle_latency": [(300, 1_000)]}


def test_a_stall_of_the_driver_is_not_the_profilers():
    script = gap().overhead("Lazy Function Loading", 100, 300, driver=True)
    assert causes(script) == LATENCY | {"idle_host": [(100, 900)]}


def test_the_profiler_counts_on_any_thread():
    script = gap(thread=AUTOGRAD).range("forward", -100, 2_000)
    script.overhead("CUPTI Resize", 150, 250)
    assert causes(script)["idle_profiler"] == [(150, 250)]


def test_a_gap_around_the_begin_of_the_account_begins_there():
    script = Script().op("kernel", 0, 100, (0, 5)).op("kernel", 500, 600, (450, 455))
    ready = prepare(script.range("step", 0, 600))
    for since, begins, before in ((50, 100, 0), (300, 300, 0), (-200, -200, UNKNOWN)):
        gaps = idle.find_gaps(ready.ops, (since, 600), ready.host.step_thread)
        assert (int(gaps.t0[0]), int(gaps.before[0])) == (begins, before)
        assert int(gaps.t1[-1]) == 500


@pytest.mark.parametrize("api", ["cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventRecord"])
def test_a_call_that_does_not_block_is_no_synchronisation(api):
    assert causes(gap().call(api, 300, 400)) == LATENCY | {"idle_host": [(100, 900)]}


def test_the_data_range_of_another_thread_is_no_wait():
    script = gap().range("data_loading", 100, 900, thread=WORKER)
    assert causes(script) == LATENCY | {"idle_host": [(100, 900)]}


def between_steps(script, inside=((-100, 200), (600, 1_500), (1_500, 1_600), (1_600, 1_700))):
    for k, (t0, t1) in enumerate(inside):
        script.range(f"step {k}", t0, t1)
    return script


def test_between_the_step_ranges_a_wait_for_data_is_inferred():
    assert causes(between_steps(gap())) == LATENCY | {
        "idle_data_wait": [(200, 600)],
        "data_inferred": [(200, 600)],
        "idle_host": [(100, 200), (600, 900)],
    }


def test_inside_a_call_no_wait_for_data_is_inferred():
    script = between_steps(gap()).call("cudaEventRecord", 250, 300)
    script.call("cudaStreamSynchronize", 400, 450)
    assert causes(script) == LATENCY | {
        "idle_data_wait": [(200, 250), (300, 400), (450, 600)],
        "data_inferred": [(200, 250), (300, 400), (450, 600)],
        "idle_sync": [(400, 450)],
        "idle_host": [(100, 200), (250, 300), (600, 900)],
    }


def test_a_call_of_another_thread_does_not_hide_the_steps_wait():
    script = between_steps(gap()).call("cudaEventRecord", 250, 300, thread=WORKER)
    assert causes(script)["data_inferred"] == [(200, 600)]


def test_where_a_range_names_the_wait_nothing_is_inferred():
    script = between_steps(gap()).range("data_loading", 150, 500)
    found = causes(script)
    assert found["idle_data_wait"] == [(150, 600)]
    assert found["data_inferred"] == [(500, 600)]


def test_nothing_is_inferred_before_the_first_step_and_after_the_last():
    inside = ((300, 400), (400, 500), (500, 600), (600, 700))
    assert "data_inferred" not in causes(between_steps(gap(), inside))


def test_instants_that_mark_steps_allow_no_inference():
    inside = ((-100, -100), (200, 200), (600, 600), (1_500, 1_500))
    assert "data_inferred" not in causes(between_steps(gap(), inside))


def test_where_the_launching_thread_is_quiet_the_step_thread_counts():
    script = between_steps(gap(thread=AUTOGRAD), ((-100, 2_000), (2_000, 2_100)))
    script.range("hook", 100, 400, thread=AUTOGRAD).range("data_loading", 300, 600)
    script.call("cudaEventRecord", 450, 500, thread=AUTOGRAD)
    assert causes(script) == LATENCY | {
        "idle_data_wait": [(400, 450), (500, 600)],
        "idle_host": [(100, 400), (450, 500), (600, 900)],
    }


def test_a_synchronisation_of_the_launching_thread_counts_as_well():
    script = between_steps(gap(thread=AUTOGRAD), ((-100, 2_000), (2_000, 2_100)))
    script.call("cudaStreamSynchronize", 200, 300, thread=AUTOGRAD)
    script.call("cudaStreamSynchronize", 400, 500)
    script.range("hook", 450, 700, thread=AUTOGRAD)
    assert causes(script) == LATENCY | {
        "idle_sync": [(200, 300), (400, 450)],
        "idle_host": [(100, 200), (300, 400), (450, 900)],
    }


def test_a_synchronisation_of_a_third_thread_does_not_count():
    script = gap().call("cudaStreamSynchronize", 200, 300, thread=WORKER)
    assert causes(script) == LATENCY | {"idle_host": [(100, 900)]}


def test_a_late_loader_thread_is_explained_by_what_the_step_thread_does():
    script = between_steps(gap(thread=WORKER), ((-100, 2_000), (2_000, 2_100)))
    script.range("[DALI] pipeline", 100, 950, thread=WORKER)
    script.call("cudaStreamSynchronize", 600, 850, thread=WORKER)
    script.range("next_batch", 200, 400).call("cudaStreamSynchronize", 500, 550)
    assert causes(script) == LATENCY | {
        "idle_data_wait": [(200, 400)],
        "idle_sync": [(500, 550)],
        "idle_host": [(100, 200), (400, 500), (550, 900)],
    }


def test_a_gap_lasts_until_any_stream_has_work():
    script = Script().op("kernel", 0, 500, (-50, -40)).op("h2d", 10, 100, (-30, -20), stream=20)
    script.op("kernel", 300, 450, (200, 210), stream=20)
    script.op("memset", 500, 510, (400, 410)).op("comm", 600, 700, (50, 60), stream=30)
    gaps = gaps_of(prepare(script))
    assert list(zip(gaps.t0, gaps.t1, strict=True)) == [(510, 600)]
    assert (gaps.before.tolist(), gaps.after.tolist()) == ([3], [4])


def test_the_op_before_a_gap_is_the_one_that_ran_last():
    script = Script().op("kernel", 0, 500, (-50, -40)).op("kernel", 10, 100, (-30, -20), stream=8)
    script.op("kernel", 600, 700, (50, 60))
    assert gaps_of(prepare(script)).before.tolist() == [0]


def test_the_main_cause_of_a_gap_fills_most_of_it():
    script = gap().range("data_loading", 100, 400).call("cudaStreamSynchronize", 400, 850)
    script.op("kernel", 2_000, 2_100, (1_150, 1_160)).op("kernel", 3_000, 3_100)
    ready = prepare(script)
    gaps = gaps_of(ready)
    found = idle.main_causes(gaps, idle.idle_causes(gaps, ready.host, ready.loaders))
    assert found == ["idle_sync", "idle_latency", "idle_unexplained"]


def late_after_sync(script, clock=0):
    ready = prepare(script, clock)
    syncs = ready.calls.filter(ready.calls["blocking"])["t1"].to_numpy()
    return rows_of(idle.idle_after_sync(gaps_of(ready), ready.ops, syncs))


def after_a_sync():
    """A launched ahead, a synchronisation until 150, B and C late, D ahead again, E late."""
    script = Script().op("kernel", 0, 100, (-50, -40)).call("cudaStreamSynchronize", -30, 150)
    script.op("kernel", 210, 220, (200, 205))
    script.op("kernel", 310, 320, (300, 305))
    script.op("kernel", 330, 400, (315, 318))
    return script.op("kernel", 520, 530, (500, 505))


def test_a_synchronisation_costs_until_the_host_is_ahead_again():
    assert late_after_sync(after_a_sync()) == [(100, 200), (220, 300)]


def test_without_a_synchronisation_nothing_follows_from_one():
    script = after_a_sync()
    script.calls.clear()
    assert late_after_sync(script) == []


def test_a_gap_that_the_host_had_fed_does_not_follow_from_a_synchronisation():
    script = Script().op("kernel", 0, 100, (-50, -40)).call("cudaStreamSynchronize", -30, -10)
    assert late_after_sync(script.op("kernel", 500, 510, (50, 60))) == []


@pytest.mark.parametrize("clock", [0, -10_000])
def test_a_gap_before_an_op_without_a_launch_is_not_late(clock):
    script = Script().op("kernel", 0, 100, (-50, -40)).call("cudaStreamSynchronize", -30, 150)
    assert late_after_sync(script.op("kernel", 300, 310), clock) == []


@pytest.mark.parametrize("clock", [0, -10_000])
def test_an_op_without_a_launch_does_not_say_that_the_host_was_ahead(clock):
    script = after_a_sync().op("kernel", 410, 420)
    expected = [(100 + clock, 200 + clock), (220 + clock, 300 + clock)]
    assert late_after_sync(script, clock) == expected


def cost_of_syncs(script):
    """What synchronisations cost in each gap, with idle time of the host charged to them."""
    ready = prepare(script)
    gaps = gaps_of(ready)
    causes = idle.idle_causes(gaps, ready.host, ready.loaders)
    calls = ready.calls.filter("blocking")
    syncs = union(calls["t0"].to_numpy(), calls["t1"].to_numpy())
    blamed = merge(causes["idle_sync"], causes["idle_host"])
    return idle.sync_cost(gaps, ready.ops, syncs, blamed).tolist()


def test_a_synchronisation_costs_the_idle_in_it_and_after_it():
    assert cost_of_syncs(after_a_sync()) == [100, 80, 0, 0]


def test_a_synchronisation_costs_no_more_than_it_lasted():
    short = Script().op("kernel", 0, 100, (-50, -40)).call("cudaStreamSynchronize", 95, 105)
    short.op("kernel", 900, 910, (890, 895))  # the host wrote a checkpoint
    assert late_after_sync(short) == [(100, 890)]
    assert cost_of_syncs(short) == [10]
    short.call("cudaStreamSynchronize", 905, 915).op("kernel", 1_000, 1_010, (990, 995))
    short.op("kernel", 1_005, 1_500, (998, 999)).op("kernel", 1_600, 1_610, (1_550, 1_560))
    assert cost_of_syncs(short) == [10, 10, 0]


def test_what_one_late_op_leaves_of_a_synchronisation_the_next_may_cost():
    script = Script().op("kernel", 0, 100, (-50, -40)).call("cudaStreamSynchronize", 40, 100)
    script.op("kernel", 140, 150, (130, 135)).op("kernel", 200, 210, (190, 195))
    script.op("kernel", 300, 310, (290, 295))
    assert cost_of_syncs(script) == [30, 30, 0]


def test_without_a_synchronisation_none_costs_anything():
    script = after_a_sync()
    script.calls.clear()
    assert cost_of_syncs(script) == [0, 0, 0, 0]
    assert cost_of_syncs(Script().op("kernel", 0, 100, (-50, -40))) == []


def analyze(script):
    return traceprobe.analyze(memory.trace(script.build())).ranks[0]


def test_the_report_lists_the_gaps_longest_first_with_their_neighbours():
    script = gap().op("kernel", 1_400, 1_500, (1_050, 1_060), name="last").range("x", 100, 800)
    found = analyze(script).gaps
    assert [(g.end_ns - g.start_ns, g.cause, g.iteration) for g in found] == [
        (900, "idle_host", None),
        (300, "idle_latency", None),
    ]
    assert found[1].after == "last"
    assert found[0].start_ns == 100 - script.ops[0].launch.t0


def test_the_report_lists_at_most_fifty_gaps_and_those_of_the_windows_only():
    script = Script()
    for k in range(80):
        script.range(f"step {k}", k * 1_000, k * 1_000 + 1_000)
        script.op("kernel", k * 1_000 + 200, k * 1_000 + 380 - k, (k * 1_000 + 10, k * 1_000 + 20))
    script.op("kernel", 99_000, 99_100, (79_500, 79_510))
    found = analyze(script).gaps
    assert len(found) == 50
    assert [g.end_ns - g.start_ns for g in found] == [898 - k for k in range(50)]
    assert [g.iteration for g in found] == [78 - k for k in range(50)]


def test_inferred_waits_are_reported_apart():
    script = Script()
    for k in range(6):
        at = k * 1_000
        script.range(f"step {k}", at, at + 400).range("data_loading", at, at + 30)
        script.op("kernel", at + 60, at + 300, (at + 50, at + 55))
    summary = analyze(script).summary
    assert summary.partition_ns["idle_data_wait"] == 5 * (30 + 600)
    assert summary.host.data_wait_inferred_ns == 5 * 600


@pytest.mark.parametrize(
    ("script", "unseen"),
    [
        (gap(), {"idle_data_wait", "idle_profiler"}),
        (gap().range("data_loading", 0, 1), {"idle_profiler"}),
        (gap().overhead("Buffer Flush", 0, 1), {"idle_data_wait"}),
        (between_steps(gap()), {"idle_profiler"}),
        (
            Script().op("kernel", 0, 100).op("kernel", 1_000, 1_100),
            set(IDLE_CAUSES) - {"idle_unexplained"},
        ),
        (
            Script().op("kernel", 0, 9).op("kernel", 90, 99).range("forward", 0, 50),
            {"idle_data_wait", "idle_profiler", "idle_sync"},
        ),
    ],
    ids=["calls", "data range", "profiler rows", "room between steps", "gpu only", "no calls"],
)
def test_a_cause_that_the_trace_could_not_show_is_null(script, unseen):
    parts = analyze(script).summary.partition_ns
    assert {c for c in IDLE_CAUSES if parts[c] is None} == unseen

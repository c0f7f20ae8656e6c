"""Playing recorded iterations again: as they were they take what they took, with changes less."""

from __future__ import annotations

from statistics import fmean

import msgspec
import pytest
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.analyses import report_of, runs
from tests.builders import kineto, memory, nsight
from tests.builders.loop import Loop
from tests.builders.program import Program
from tests.builders.scenario import Script
from tests.schedules import schedule, task
from traceprobe.compare.run import observe
from traceprobe.errors import ImpossibleChange
from traceprobe.records.recording import RecordedBlock, Recording
from traceprobe.records.report import ObserverEffect
from traceprobe.records.summary import Communication
from traceprobe.replay.buckets import rebucketed
from traceprobe.replay.calibrate import HostBelief, calibrate
from traceprobe.replay.pace import pace_of
from traceprobe.replay.predict import predict, prepare
from traceprobe.replay.scenario import Changes, apply, check
from traceprobe.replay.simulate import simulate, simulate_ranks
from traceprobe.replay.tasks import (
    rows_of,
    schedule_of,
)
from traceprobe.replay.transfers import waiting_beside
from traceprobe.whatif.summary import what_if

US = 1_000
MS = 1_000_000
LOOP = {
    "steps": 6,
    "h2d_ns": 400_000,
    "forward_ns": 400_000,
    "backward_ns": 600_000,
    "comm_ns": 250_000,
    "comm_overlap_ns": 100_000,
    "optimizer_ns": 100_000,
}
LOOPS = {
    "gpu-never-idle": {"loop_gap_ns": 0, "lag_ns": 1_200_000},
    "host-late": {"launch_gap_ns": 60_000},
    "waits-for-data": {"data_wait_ns": 3_000_000, "wait": "loader", "step_name": "ProfilerStep#{}"},
    "synchronises": {"sync_ns": 300_000, "tail_ns": 50_000},
    "exposed-communication": {"comm_overlap_ns": 0},
    "several-collectives": {"collectives": 3, "comm_overlap_ns": 50_000},
}


# The rules of the player


def test_a_busy_gpu_hides_the_host():
    assert (
        simulate([schedule(task(host=3, duration=10), task("backward", host=4, duration=20))]) == 30
    )


def test_a_slow_host_hides_the_gpu():
    assert (
        simulate([schedule(task(host=30, duration=10), task("backward", host=40, duration=20))])
        == 70
    )


def test_what_the_host_awaits_keeps_it_from_running_ahead():
    rows = (task(host=5, duration=10), task("backward", host=5, duration=20, awaits=1))
    # The host waits for the forward pass, launches 5 later, and meanwhile the GPU has nothing;
    # the next iteration's launch is made while the backward pass runs.
    assert simulate([schedule(*rows, latency=1)]) == 10 + 5 + 1 + 20


def test_streams_run_beside_each_other_and_needs_join_them():
    alone = schedule(task(duration=10), task("communication", duration=30, stream=1))
    assert simulate([alone]) == 30
    needing = schedule(
        task(duration=10, needs=(1,)), task("communication", duration=30, stream=1, needs=(1,))
    )
    assert simulate([needing]) == 40


def test_a_late_loader_sets_the_pace():
    rows = (task(duration=10, data_wait=3), task("backward", duration=20))
    assert simulate([schedule(*rows, period=100)]) == 100
    assert simulate([schedule(*rows, period=None)]) == 30


def test_a_late_loader_makes_a_batch_for_steps_that_find_theirs_ready_too():
    hidden = (task(duration=10), task("backward", duration=20))
    waits = replace(task(duration=10, data_wait=3), iteration=1)
    rows = (*hidden, waits, replace(task("backward", duration=20), iteration=1))
    assert simulate([schedule(*rows, period=100)]) == 100


def test_joined_operations_end_after_the_last_launch():
    joined = task(host=100, first_host=10, duration=50, tail=5)
    assert simulate([schedule(joined)]) == 100
    assert simulate([schedule(replace(joined, duration=300))]) == 300


def test_a_collective_starts_when_the_last_rank_is_ready():
    def rank(work):
        reduced = task("communication", duration=5, stream=1, needs=(1,), collective=True)
        return schedule(
            task("backward", duration=work), reduced, task("optimizer", duration=1, needs=(1,))
        )

    assert simulate([rank(10), rank(50)]) == 50 + 5 + 1
    assert simulate_ranks([[rank(10), rank(50)]]) == [[50 + 5 + 1] * 2]
    apart = [apply(p, Changes(removed=frozenset({"skew"}))) for p in (rank(10), rank(50))]
    assert fmean(simulate_ranks([apart])[0]) == (16 + 56) / 2
    behind = Changes(removed=frozenset({"straggler"}))
    apart = [apply(p, behind) for p in (rank(10), rank(50), rank(20))]
    (steps,) = simulate_ranks([apart])
    assert pace_of(behind, 1)(steps) == 20 + 5 + 1
    assert pace_of(behind, None)(steps) == 50 + 5 + 1


@pytest.mark.parametrize("gone", ["skew", "straggler"])
def test_kernels_beside_collectives_that_wait_no_more_are_faster(gone):
    """A fifth of the kernel goes without collectives; these wait for other ranks half of the time,
    and cost half as much meanwhile."""
    work = task("backward", duration=100, alone=0.8, collective=False)
    reduced = task("communication", duration=5, stream=1, needs=(1,), collective=True)
    rank = replace(schedule(work, reduced), waited=0.5)
    apart = apply(rank, Changes(removed=frozenset({gone}))).tasks
    assert apart.duration.tolist() == [95, 5]
    assert apart.alone[0] * 95 == pytest.approx(80)
    assert apply(rank, Changes(removed=frozenset({"host"}))).tasks.duration.tolist() == [100, 5]


@pytest.mark.parametrize(
    ("exposed", "skew", "beside"), [(6, 6, 2 / 4), (6, 2, 1.0), (6, None, 1.0), (10, 10, 0.0)]
)
def test_collectives_wait_first_where_nothing_is_computed(exposed, skew, beside):
    """Of 10 ms that collectives last 8 are waiting; some of it is known to be exposed."""
    rank = records.rank({"forward": 10})
    times = Communication(
        total_ns=10,
        exposed_ns=exposed,
        overlapped_ns=10 - exposed,
        overlap_pct=0.0,
        skew_exposed_ns=skew,
    )
    rank = replace(rank, summary=replace(rank.summary, communication=times))
    assert waiting_beside(rank, 0.8) == pytest.approx(beside)


def test_ranks_with_unequal_collectives_play_alone():
    two = schedule(task(duration=10), task("communication", duration=5, collective=True))
    one = schedule(task(duration=40))
    assert simulate([two, one]) == 40


# Changes

STEP = (
    task("h2d", duration=20, data_wait=4),
    task("forward", duration=30),
    task("backward", duration=50),
    task("communication", duration=40, stream=1, needs=(1,), bytes=1 << 20, collective=True),
    task("optimizer", duration=10, needs=(1,)),
)
AS_IT_IS = 20 + 30 + 50 + 40 + 10


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (Changes(), AS_IT_IS),
        (Changes(removed=frozenset({"communication"})), 110),
        (Changes(removed=frozenset({"h2d", "communication"})), 90),
        (Changes(overlapped=frozenset({"communication"})), 110),
        (Changes(overlapped=frozenset({"h2d"})), AS_IT_IS - 20),
        (Changes(speedup={"backward": 2.0}), AS_IT_IS - 25),
        (Changes(speedup={"compute": 2.0}), 20 + 15 + 25 + 40 + 5),
        (Changes(speedup={"communication": 0.5}), AS_IT_IS + 40),
        (Changes(accumulate=3), AS_IT_IS + 2 * (20 + 30 + 50)),
    ],
)
def test_changes_of_a_gpu_that_is_never_idle(changes, expected):
    assert simulate([apply(schedule(*STEP), changes)]) == pytest.approx(expected)


def test_hidden_communication_still_takes_its_time():
    slow = [replace(r, duration=400.0, tail=400.0) if r.collective else r for r in STEP]
    assert (
        simulate([apply(schedule(*slow), Changes(overlapped=frozenset({"communication"})))]) == 400
    )


def test_a_faster_host_and_no_synchronisation_leave_the_gpu():
    rows = (
        task(host=60, duration=10, ops=0),
        task("backward", host=60, duration=20, awaits=1, ops=0),
    )
    assert simulate([schedule(*rows)]) == 10 + 60 + 60
    assert simulate([apply(schedule(*rows), Changes(removed=frozenset({"sync"})))]) == 120
    assert simulate([apply(schedule(*rows), Changes(removed=frozenset({"host"})))]) == 30
    assert simulate([apply(schedule(*rows), Changes(speedup={"host": 2.0}))]) == 10 + 30 + 30


def test_a_faster_loader_is_late_until_something_else_is():
    rows = (task(duration=10, data_wait=3), task("backward", duration=20))
    for factor, expected in ((2.0, 54), (20.0, 30)):
        faster = apply(schedule(*rows, period=100), Changes(speedup={"loader": factor}))
        assert simulate([faster]) == expected
    gone = apply(schedule(*rows, period=100), Changes(removed=frozenset({"data-wait"})))
    assert simulate([gone]) == 30


# Buckets


def messages(*sizes):
    """A backward pass of 10 µs a message, each of which takes 1 µs + 1 µs per MB."""
    rows = []
    for size in sizes:
        ns = (1 + size) * US
        rows.append(task("backward", duration=10 * US))
        rows.append(
            task(
                "communication",
                duration=ns,
                tail=ns,
                stream=1,
                needs=(1,),
                bytes=size << 20,
                collective=True,
            )
        )
    return schedule(*rows, task("optimizer", duration=US, needs=(1,)))


def test_tiny_kernels_that_get_fewer_take_their_launches_and_gaps_along():
    tiny = {"host": 40 * US, "duration": 20 * US, "lag": 10 * US, "ops": 10}
    rows = [task(duration=100 * US), task("backward", **tiny), task("optimizer", **tiny)]
    fewer = apply(schedule(*rows), Changes(speedup={"tiny-kernels": 2.0})).tasks
    assert (fewer.duration / US).tolist() == [100, 10, 20]
    assert (fewer.lag / US).tolist() == [0, 5, 10]
    assert (fewer.host / US).tolist() == [pytest.approx(0.001), 20, 40]
    with pytest.raises(ImpossibleChange, match="tiny-kernels: the run has none"):
        check(schedule(*rows[::2]), Changes(speedup={"tiny-kernels": 2.0}))


def test_larger_buckets_are_sent_with_the_last_gradient_of_each():
    before = messages(4, 16, 4, 16)
    (after,), sizes, links = rebucketed([before], 20, 2)
    assert [size >> 20 for size in sizes] == [20, 20]
    assert links.latency_known
    # Each takes 21 µs; the first is ready after 20 µs, the second waits for it.
    assert simulate([after]) / US == pytest.approx(20 + 21 + 21 + 1, rel=0.02)
    (one,), sizes, _ = rebucketed([before], 1000, 2)
    assert len(sizes) == 1
    assert simulate([one]) / US == pytest.approx(40 + 41 + 1, rel=0.02)


def test_smaller_buckets_are_cut_evenly():
    (after,), sizes, _ = rebucketed([messages(4, 16)], 4, 2)
    assert [size >> 20 for size in sizes] == [4, 4, 4, 4, 4]
    # Ready after 10, 12.5 (with the whole second pass, of one row), …: the last five at 20 µs.
    assert simulate([after]) / US == pytest.approx(20 + 4 * 5 + 1, rel=0.05)


def test_the_same_buckets_take_the_same_time():
    before = messages(4, 16, 8)
    (after,), _, _ = rebucketed([before], 1, 2)
    assert len(after.tasks) > len(before.tasks)
    (again,), sizes, _ = rebucketed([messages(8, 8, 8)], 8, 2)
    assert len(sizes) == 3
    assert simulate([again]) == pytest.approx(simulate([messages(8, 8, 8)]), rel=1e-6)


def test_without_sizes_there_are_no_other_buckets():
    unsized = schedule(*(replace(r, bytes=-1) for r in rows_of(messages(4).tasks)))
    with pytest.raises(ImpossibleChange, match="sizes"):
        rebucketed([unsized], 10, 2)


# Calibration

HALF = HostBelief(0.5, 0.15)


def test_the_host_is_scaled_to_the_unprofiled_step():
    found = calibrate(
        [schedule(task(host=60, duration=10), task("backward", host=60, duration=20))],
        90,
        HALF,
    )
    assert found.host == pytest.approx(0.75, rel=1e-2)
    assert found.host_known
    assert found.factor * simulate(found.schedules) == pytest.approx(90)


def test_pauses_that_were_longer_are_no_slower_host():
    """Launching for 120 ns and a pause of 30: 90 were expected without the profiler, 120 it was.

    The 30 more are shared out by squared errors: those of launching, of the pause, of the step.
    """
    paused = [schedule(task(host=150, pause=30, duration=10))]
    found = calibrate(paused, 120, HALF)
    launching, pause, step = (120 * 0.15) ** 2, (30 * 0.4) ** 2, (120 * 0.02) ** 2
    each = (120 - 90) / (launching + pause + step)
    assert found.host == pytest.approx(0.5 + each * launching / 120, rel=1e-2)
    assert found.held_up == pytest.approx(1 + each * pause / 30, rel=1e-2)
    assert found.factor * simulate(found.schedules) == pytest.approx(120)
    without = [apply(each, Changes(removed=frozenset({"pauses"}))) for each in found.schedules]
    assert simulate(without) == pytest.approx(120 * found.host, rel=1e-6)


def test_pauses_that_hardly_are_any_are_not_weighed():
    found = calibrate([schedule(task(host=100, pause=1, duration=10))], 50, HALF)
    assert found.held_up == 1


@pytest.mark.parametrize(("gone", "left"), [("pauses", 70), ("stalls", 80), ("host", 0)])
def test_pauses_and_stalls_of_the_host_go_by_themselves(gone, left):
    held = schedule(task(host=100, pause=30, stall=20, duration=1))
    changed = apply(held, Changes(removed=frozenset({gone})))
    assert changed.tasks.host.tolist() == [left]
    faster = apply(held, Changes(speedup={"host": 5}))
    assert faster.tasks.host.tolist() == [30 + 20 + 50 / 5]


def test_collectives_are_scaled_where_the_host_does_not_matter():
    found = calibrate([schedule(*STEP)], AS_IT_IS - 20, HALF)
    assert not found.host_known
    assert found.collectives == pytest.approx(0.5, rel=1e-2)
    assert found.factor == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize(
    ("kind", "held_up", "collectives"), [("communication", 1.0, 86 / 80), ("optimizer", 1.6, 1.0)]
)
def test_collectives_that_a_step_waits_for_may_be_what_got_longer(kind, held_up, collectives):
    """A step of 96 ns that is played with 90: its host takes 75, of which a pause has 30."""
    work = task(host=75, pause=30, duration=10)
    found = calibrate([schedule(work, task(kind, host=0, duration=80))], 96, HostBelief(1.0, 0.1))
    assert found.held_up == pytest.approx(held_up, abs=0.01)
    assert found.collectives == pytest.approx(collectives, rel=1e-2)
    assert found.factor * simulate(found.schedules) == pytest.approx(96)


def test_what_nothing_explains_is_a_factor():
    found = calibrate([schedule(task(duration=100))], 98, HALF)
    assert (found.collectives, found.host_known) == (1.0, False)
    assert found.factor == pytest.approx(0.98)


@pytest.mark.parametrize(("stream", "lags"), [(1, [8_000, 2_000, 0]), (0, [13_000, 2_000, 0])])
def test_kernels_that_wait_for_room_on_the_device_wait_less_beside_faster_ones(stream, lags):
    """Those of one stream wait for nothing of that kind; lags of up to 3 µs are the device's."""
    waited = schedule(
        task(duration=20_000, lag=13_000, tail=33_000),
        task(duration=20_000, lag=2_000, tail=22_000),
        task("backward", duration=50_000, tail=50_000, stream=stream),
        task("communication", duration=9_000, lag=13_000, tail=22_000, collective=True),
    )
    faster = apply(waited, Changes(speedup={"compute": 2.0, "communication": 2.0})).tasks
    assert faster.lag.tolist() == [*lags, 13_000]
    assert (faster.tail - faster.duration).tolist() == faster.lag.tolist()


# From traces


@pytest.mark.parametrize("write", [kineto.write, nsight.write], ids=["kineto", "nsight"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_plays_as_it_was_recorded(write, name, tmp_path):
    loop = Loop(**{**LOOP, **LOOPS[name]})
    report = traceprobe.analyze(traceprobe.load(write(loop.scenario(), tmp_path / "trace")))
    (rank,) = report.ranks
    played = simulate([schedule_of(rank.replay)]) / 1e6
    assert played == pytest.approx(rank.summary.step_ms.mean, rel=0.01)


@pytest.mark.parametrize("files", runs().values(), ids=runs())
def test_samples_play_as_they_were_recorded(files):
    report = report_of(*files)
    ranks = [rank for rank in report.ranks if not isinstance(rank.replay, msgspec.UnsetType)]
    if not ranks:
        assert all(r.device.kind == "cpu" or r.summary.iterations_used < 2 for r in report.ranks)
        return
    for rank in ranks:
        last = [i.index for i in rank.iterations if i.used][-rank.replay.iterations :]
        length = {i.index: i.end_ns - i.start_ns for i in rank.iterations if i.start_ns is not None}
        own = sum(length[k] for k in last) / len(last)
        # What the host waits for before an iteration lies in the GPU window before its own.
        before = sum(length.get(k - 1, length[k]) for k in last) / len(last)
        low, high = sorted((own, before))
        assert low * 0.97 <= simulate([schedule_of(rank.replay)]) <= high * 1.03


@pytest.fixture
def waiting(tmp_path):
    """A loop that waits for data, as a report."""
    loop = Loop(**{**LOOP, **LOOPS["waits-for-data"]})
    return traceprobe.analyze(traceprobe.load(kineto.write(loop.scenario(), tmp_path / "trace")))


def test_removing_the_wait_leaves_the_rest(waiting):
    run = prepare(waiting)
    found = predict(run, Changes(removed=frozenset({"data-wait"})))
    partition, used = waiting.ranks[0].summary.partition_ns, waiting.ranks[0].summary
    waited = partition["idle_data_wait"] / used.iterations_used / 1e6
    assert found.predicted == pytest.approx(run.now - waited, rel=0.02)
    assert found.low <= found.predicted <= found.high
    assert run.late_loader


@pytest.mark.parametrize(
    ("profiler", "wait", "own_pace"),
    [
        (1.3, "between", False),  # slower beside a profiler: the host makes the batches
        (1.0, "between", True),
        (1.3, "loader", True),  # named: by its DataLoader
    ],
)
def test_only_a_loader_of_its_own_keeps_its_pace_beside_a_profiler(
    tmp_path, profiler, wait, own_pace
):
    loop = Loop(
        **{**LOOP, "data_wait_ns": 20_000_000, "sync_ns": 4_000_000, "wait": wait},
        step_name="ProfilerStep#{}",
    )
    trace = traceprobe.load(kineto.write(loop.scenario(), tmp_path / "trace.json"))
    step_ms = traceprobe.analyze(trace).ranks[0].summary.step_ms.mean
    known = traceprobe.Options(unprofiled_step_ms=step_ms / profiler)
    run = prepare(traceprobe.analyze(trace, known))
    assert run.late_loader == own_pace
    unread = predict(run, Changes(removed=frozenset({"sync"}))).predicted
    assert (unread < 0.99 * run.now) != own_pace  # somebody else keeps the step as long


@pytest.mark.parametrize(
    ("wait_ns", "wait", "own_pace"),
    [
        pytest.param(200_000, "between", False, id="short, and nothing names a loader"),
        pytest.param(2_000_000, "between", True, id="it bounds the run"),
        pytest.param(200_000, "loader", True, id="in the range of a DataLoader"),
    ],
)
def test_a_short_wait_that_nothing_names_is_the_hosts(wait_ns, wait, own_pace):
    work = {"forward_ns": 1_000_000, "backward_ns": 1_500_000, "optimizer_ns": 300_000}
    loop = Loop(steps=8, data_wait_ns=wait_ns, wait=wait, **work)
    assert prepare(traceprobe.analyze(memory.trace(loop.scenario()))).late_loader == own_pace


def test_a_loader_is_not_waited_for_outside_of_its_ranges():
    work = {"forward_ns": 1_000_000, "backward_ns": 1_500_000, "optimizer_ns": 300_000}
    loop = Loop(steps=8, data_wait_ns=2_000_000, wait="between", **work)
    report = traceprobe.analyze(memory.trace(loop.scenario()))
    assert prepare(report).late_loader
    (rank,) = report.ranks
    host = replace(rank.summary.host, loader_in_workers=True)
    named = replace(rank, summary=replace(rank.summary, host=host))
    assert not prepare(replace(report, ranks=[named])).late_loader


@pytest.mark.parametrize(("unprofiled", "least"), [(7.0, 6.0), (5.5, 0.0)])
def test_no_change_of_the_host_makes_a_step_shorter_than_its_kernels(unprofiled, least):
    """Unless the kernels were faster without the profiler, as of a GPU whose clock had fallen."""
    program = Program()
    for k in range(8):
        with program.range(f"step {k}"):
            program.kernels([f"forward_{i}" for i in range(3)], ns=1_000_000)
            program.kernels([f"backward_{i}" for i in range(3)], ns=1_000_000, backward=True)
            program.wait().sleep(3_500_000)
    known = traceprobe.Options(unprofiled_step_ms=unprofiled)
    run = prepare(traceprobe.analyze(program.trace(), known))
    without = predict(run, Changes(removed=frozenset({"host"}))).predicted
    assert without >= least
    assert predict(run, Changes()).predicted == pytest.approx(unprofiled)
    assert without < 7.0 if least else without < 6.0


def test_a_step_that_is_longer_without_a_profiler_has_other_reasons_than_its_host():
    """The host is hardly faster than the GPU: one slowed by a tenth would explain the step."""
    program = Program()
    for k in range(8):
        with program.range(f"step {k}"):
            program.sleep(5_950_000)
            program.kernels([f"forward_{i}" for i in range(3)], ns=1_000_000)
            program.kernels([f"backward_{i}" for i in range(3)], ns=1_000_000, backward=True)
    step_ms = traceprobe.analyze(program.trace()).ranks[0].summary.step_ms.mean
    known = traceprobe.Options(unprofiled_step_ms=1.09 * step_ms)
    run = prepare(traceprobe.analyze(program.trace(), known))
    assert run.base.host <= 1.0
    faster = predict(run, Changes(speedup={"backward": 2.0}))
    assert faster.predicted < 0.9 * run.now


@pytest.mark.parametrize(
    ("long", "pause_ms", "host_ms"),
    [({5}, 60, 0.0), ({3, 8}, 12, 12 * 2 / 9)],
    ids=["an outlier before those that are played", "the last of them, one in four"],
)
def test_what_follows_the_last_launch_of_an_iteration_belongs_to_that_one(long, pause_ms, host_ms):
    """It is played where the iterations begin anew, whichever came before them."""
    program = Program()
    for k in range(10):
        with program.range(f"step {k}"):
            program.kernels([f"forward_{i}" for i in range(3)], ns=1_000_000)
            program.kernels([f"backward_{i}" for i in range(3)], ns=1_000_000, backward=True)
            program.wait().sleep(pause_ms * 1_000_000 if k in long else 1_000)
    run = prepare(traceprobe.analyze(program.trace()))
    without = predict(run, Changes(removed=frozenset({"host"}))).predicted
    assert run.now - without == pytest.approx(host_ms, abs=0.1)
    assert run.base.played_ns / 1e6 == pytest.approx(run.now, rel=0.1)


def test_a_pause_of_the_profiler_after_the_iterations_is_not_played():
    program = Program()
    for k in [*range(2, 8), *range(12, 18)]:
        if k == 12:
            program.sleep(500_000_000)
        with program.range(f"ProfilerStep#{k}"):
            program.kernels([f"forward_{i}" for i in range(4)], ns=200_000)
            program.kernels([f"backward_{i}" for i in range(4)], ns=200_000, backward=True)
            program.wait()
    run = prepare(traceprobe.analyze(program.trace(), traceprobe.Options(steps=(0, 6))))
    assert run.base.played_ns / 1e6 == pytest.approx(run.now, rel=0.05)


@pytest.mark.parametrize(("unprofiled", "own_pace"), [(1.0, True), (0.8, False)])
def test_steps_that_are_longer_but_for_their_waits_wait_for_no_pace(tmp_path, unprofiled, own_pace):
    """A loader that keeps up with steps without a profiler is ahead of those that it slows."""
    loop = Loop(**{**LOOP, **LOOPS["waits-for-data"], "data_wait_ns": 200_000})
    trace = traceprobe.load(kineto.write(loop.scenario(), tmp_path / "trace.json"))
    step_ms = traceprobe.analyze(trace).ranks[0].summary.step_ms.mean
    known = traceprobe.Options(unprofiled_step_ms=step_ms * unprofiled)
    assert prepare(traceprobe.analyze(trace, known)).late_loader == own_pace


def with_blocks(report, *steps_ms):
    """A report whose recording timed blocks without the profiler."""
    now = sum(steps_ms) / len(steps_ms)
    step_ms = report.ranks[0].summary.step_ms.mean
    effect = ObserverEffect(
        profiled_step_ms=step_ms, unprofiled_step_ms=now, ratio=round(step_ms / now, 4)
    )
    blocks = [
        RecordedBlock(profiled=False, steps=20, step_ms=ms, kept=True, sm_mhz=None)
        for ms in steps_ms
    ]
    recording = Recording(warmup_steps=8, steady=True, period=1, reason=None, blocks=blocks)
    return replace(
        report, quality=replace(report.quality, observer_effect=effect, recording=recording)
    )


def test_the_step_as_it_is_may_differ_as_its_blocks_do(waiting):
    step_ms = waiting.ranks[0].summary.step_ms.mean
    widths = []
    for apart in (0.0, 0.1):
        report = with_blocks(waiting, step_ms * (1 - apart / 2), step_ms * (1 + apart / 2))
        now, gone = (
            predict(prepare(report), changes)
            for changes in (Changes(), Changes(removed=frozenset({"data-wait"})))
        )
        widths.append((now.high - now.low, gone.high - gone.low))
    # Half of what two differ by is the error of their mean, of which five or six hold nine of ten.
    assert widths[1][0] - widths[0][0] == pytest.approx(5.6 * 0.1 * step_ms, rel=0.1)
    assert widths[1][1] == pytest.approx(widths[0][1])


def test_without_changes_there_is_a_menu(waiting):
    record = what_if(observe(waiting), None)
    assert record.asked is None
    assert record.alone[0].changes == ["no waiting for data"]
    assert [row.speedup for row in record.alone] == sorted(
        (row.speedup for row in record.alone), reverse=True
    )
    assert "best single change, no waiting for data, would make it" in record.headline


def test_what_a_run_has_not_cannot_be_changed(waiting):
    with pytest.raises(ImpossibleChange, match="recompute: the run has none"):
        predict(prepare(waiting), Changes(removed=frozenset({"recompute"})))


MANY_RANKS = next(files for files in runs().values() if len(files) == 2)


def test_ranks_are_played_for_as_many_iterations_each():
    """Of one of them an iteration may not count: its clock was changed, or it was a long one."""
    report = report_of(*MANY_RANKS)
    few = [replace(rank, replay=rank.replay.last(2)) for rank in report.ranks]
    assert {rank.replay.iterations for rank in report.ranks} == {4}
    uneven = prepare(replace(report, ranks=[report.ranks[0], few[1]]))
    assert [schedule.iterations for schedule in uneven.base.schedules] == [2, 2]
    even = prepare(replace(report, ranks=few))
    for removed in ("communication", "host"):
        change = Changes(removed=frozenset({removed}))
        assert predict(uneven, change).predicted == predict(even, change).predicted


def test_the_last_iterations_of_a_replay_have_their_own_rows_and_needs():
    whole = report_of(*MANY_RANKS).ranks[0].replay
    last = whole.last(3)
    assert list(last.problems()) == []
    assert (last.iterations, set(last.iteration)) == (3, {0, 1, 2})
    first = whole.iteration.index(1)
    assert last.duration_ns == whole.duration_ns[first:]
    assert [row + first for row in last.more_rows] == [r for r in whole.more_rows if r >= first]
    assert last.more_needs == whole.more_needs[len(whole.more_needs) - len(last.more_needs) :]
    assert whole.last(4) == whole


def test_a_report_without_replay_says_what_it_takes(waiting):
    (rank,) = waiting.ranks
    bare = msgspec.structs.replace(
        waiting, ranks=[msgspec.structs.replace(rank, replay=msgspec.UNSET)]
    )
    with pytest.raises(ImpossibleChange, match="no iterations to play"):
        predict(prepare(bare), Changes())


@pytest.mark.parametrize(
    "broken",
    [{"kind": [99]}, {"host_ns": [1, 2]}, {"bytes": []}, {"iterations": 0}, {"kind": []}],
    ids=str,
)
def test_a_tampered_replay_is_refused(waiting, broken):
    (rank,) = waiting.ranks
    replay = msgspec.structs.replace(rank.replay, **broken)
    report = msgspec.structs.replace(waiting, ranks=[msgspec.structs.replace(rank, replay=replay)])
    with pytest.raises(ImpossibleChange, match="damaged"):
        predict(prepare(report), Changes())


def with_steps(report, *lengths_ms):
    """The report with one rank for each list of step lengths, all with the same replay."""
    (rank,) = report.ranks
    used = next(i for i in rank.iterations if i.used)
    replace = msgspec.structs.replace
    ranks = [
        replace(
            rank,
            rank=number,
            iterations=[
                replace(used, index=n, end_ns=used.start_ns + round(1e6 * ms))
                for n, ms in enumerate(lengths)
            ],
        )
        for number, lengths in enumerate(lengths_ms)
    ]
    return replace(report, ranks=ranks)


def half_width(report, asked=None):
    found = predict(prepare(report), asked or Changes())
    return (found.high - found.low) / 2


QUIET, NOISY = (6.0, 6.0, 6.0, 6.0), (4.0, 8.0, 12.0, 8.0)


def test_the_noise_is_that_of_the_rank_that_sets_the_pace(waiting):
    quiet = half_width(with_steps(waiting, QUIET))
    noisy = half_width(with_steps(waiting, NOISY))
    assert noisy > quiet + 2
    # The first rank is quiet, and sets the pace in the first step only.
    both = half_width(with_steps(waiting, QUIET, NOISY))
    paced = half_width(with_steps(waiting, (6.0, 8.0, 12.0, 8.0)))
    assert both == pytest.approx(paced)


def test_a_first_rank_without_its_iterations_hides_no_noise(waiting):
    many = with_steps(waiting, (), *[NOISY] * 19)
    assert half_width(many) == pytest.approx(half_width(with_steps(waiting, NOISY)))


def test_waiting_for_other_ranks_is_not_noise_of_a_rank(waiting):
    report = with_steps(waiting, NOISY)
    replace = msgspec.structs.replace
    (rank,) = report.ranks
    waited = [
        replace(i, skew_exposed_ns=i.end_ns - i.start_ns - 4_000_000) for i in rank.iterations
    ]
    steady = replace(report, ranks=[replace(rank, iterations=waited)])
    assert half_width(steady) == pytest.approx(half_width(with_steps(waiting, (4.0,) * 4)))


@pytest.mark.parametrize(("ahead", "own"), [(900, False), (0, True)])
def test_launches_into_a_queue_that_was_full_before_the_recording_wait(tmp_path, ahead, own):
    """Kernels of 1 ms, each launch as long as one, and as many kernels ahead of the first."""
    script = Script()
    for k in range(80):
        at, t0 = k * MS, (1 + k + ahead) * MS
        if k % 10 == 0:
            script.range(f"step {k // 10}", at, at + 10 * MS)
        script.op("kernel", t0, t0 + MS - 1_000, (at, at + MS - 5_000), name=f"gemm_{k % 10}")
    path = tmp_path / "trace.json"
    kineto.write(script.build(), path)
    replay = report_of(path).ranks[0].replay
    each = sum(replay.host_ns) / sum(replay.ops)
    assert each > 0.9 * MS if own else each < 0.02 * MS


def test_changes_of_one_factor_are_told_together_in_digits_that_matter():
    speedup = {"backward": 2.2018, "forward": 2.2018, "recompute": 2.2018, "optimizer": 2.0}
    assert Changes(speedup=speedup, fewer={"optimizer": 3.0}).words() == [
        "forward, backward and recompute 2.2× as fast",
        "optimizer twice as fast",
        "fewer launches of the optimizer",
    ]


@pytest.mark.parametrize(("gap_us", "needed"), [(5, 2), (20, 2), (200, 1)])
def test_a_wait_without_a_record_is_for_what_ended_just_before(tmp_path, gap_us, needed):
    """AMD's traces have no records of events: only the start tells what was waited for."""
    script = Script()
    for at in range(0, 8 * 4 * MS, 4 * MS):
        script.range(f"step {at // (4 * MS)}", at, at + 4 * MS - 1)
        call = iter(range(at, at + MS, 10 * US))
        done = at + 3_200 * US
        for stream, kind, t0, t1 in (
            (7, "kernel", at + 100 * US, at + 1_000 * US),
            (20, "comm", at + 1_002 * US, done),
            (7, "kernel", done + gap_us * US, at + 3_900 * US),
        ):
            script.call("hipStreamWaitEvent", begin := next(call), begin + US)
            launch = (begin := next(call), begin + US)
            script.op(kind, t0, t1, launch, stream=stream)
    path = kineto.write(script.build(), tmp_path / "t.json")
    edges = traceprobe.analyze(traceprobe.load(path)).critical_path.edges
    assert edges.inferred == 4 * needed  # the collective its kernels, and mostly one the collective


@pytest.mark.parametrize("noted", [True, False])
def test_a_launch_that_the_driver_holds_back_for_a_full_queue_is_no_work_of_the_host(noted):
    """Each step's first launch lasts 8 ms of 10; the GPU is three steps behind, and never idle."""
    script = Script()
    for step in range(6):
        begin, late = step * 10 * MS, (3 + step) * 10 * MS
        script.range(f"ProfilerStep#{step}", begin, begin + 10 * MS)
        script.op("kernel", late, late + 5 * MS, (begin + MS, begin + 9 * MS))
        script.op("kernel", late + 5 * MS, late + 10 * MS, (begin + 9 * MS, begin + 9 * MS + US))
        if noted:
            script.overhead("Command Buffer Full", begin + MS + US, begin + 9 * MS - US)
    report = traceprobe.analyze(memory.trace(script.build()))
    tasks = schedule_of(report.ranks[0].replay).tasks
    host_ms = tasks.host.sum() / report.ranks[0].replay.iterations / MS
    assert host_ms == pytest.approx(2 if noted else 10, abs=0.1)

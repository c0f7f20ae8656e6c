"""What the host does only to read values: found among tasks, and gone without them."""

from __future__ import annotations

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.schedules import schedule, task
from traceprobe.replay.reads import CALL_NS, CLOSE_OPS, VALUE_NS, find_reads
from traceprobe.replay.scenario import Changes, apply
from traceprobe.replay.simulate import simulate

US = 1_000.0
READS = Changes(removed=frozenset({"reads"}))


def kernel(host_us, *, awaits=0, ops=1, **more):
    """A kernel of 2 µs, before which the host may wait for the task before."""
    return task(host=host_us * US, duration=2 * US, awaits=awaits, ops=ops, **more)


def copy(host_us=20, duration=1 * US, **more):
    return task("d2h", host=host_us * US, duration=duration, **more)


def left(*rows):
    """Host time without reads, µs."""
    return (find_reads(schedule(*rows).tasks).host / US).tolist()


def test_a_read_costs_its_call():
    assert left(kernel(50), copy(25), kernel(40, awaits=1)) == [50, 25 - CALL_NS / US, 40]


def test_between_close_reads_the_host_only_launches():
    rows = [kernel(50), copy(), kernel(40, awaits=1), copy(), kernel(60, awaits=1)]
    assert left(*rows) == [50, 10, CALL_NS / US, 0, 60]


def test_reads_that_are_apart_are_not_one_act():
    between = [kernel(40, awaits=1), kernel(40, ops=CLOSE_OPS)]
    assert left(kernel(50), copy(), *between, copy(), kernel(60, awaits=1)) == [
        *(50, 10, 40, 40, 10, 60)
    ]


def test_reads_of_different_steps_are_not_one_act():
    second = [kernel(40, awaits=1, iteration=1), copy(iteration=1)]
    last = kernel(60, awaits=1, iteration=1)
    assert left(kernel(50), copy(), *second, last) == [50, 10, 40, 10, 60]


@pytest.mark.parametrize(
    "rows",
    [
        (kernel(50), copy(), kernel(40)),
        (kernel(50), copy(duration=VALUE_NS + 1), kernel(40, awaits=1)),
        (kernel(50), task("h2d", host=20 * US, duration=US), kernel(40, awaits=1)),
    ],
    ids=["nobody waits", "a whole tensor", "to the device"],
)
def test_what_is_no_read_stays(rows):
    found = find_reads(schedule(*rows).tasks)
    assert not found.copies.any()
    assert (found.host == schedule(*rows).tasks.host).all()


def test_without_reads_the_host_is_ahead_again():
    """A GPU of 500 µs a step, which idles while the host reads and launches."""
    rows = [task(host=100 * US, duration=500 * US), copy(), kernel(40, awaits=1), copy()]
    rows.append(task("optimizer", host=100 * US, duration=2 * US, awaits=1))
    assert simulate([schedule(*rows)]) > 650 * US
    # Nothing of the GPU's goes but the copies.
    assert simulate([apply(schedule(*rows), READS)]) == pytest.approx(504 * US)


@pytest.mark.parametrize(
    ("kind", "duration_us", "gone"),
    [("backward", 2, True), ("backward", 9, False), ("forward", 2, False), ("optimizer", 2, False)],
)
def test_short_kernels_that_compute_what_is_read_go_with_it(kind, duration_us, gone):
    """A forward pass may be a policy's, which acts, and an optimizer's an update for each read."""
    between = task(kind, host=40 * US, duration=duration_us * US, awaits=1, pause=15 * US)
    rows = [kernel(50), copy(), between, copy(), kernel(60, awaits=1)]
    found = find_reads(schedule(*rows).tasks)
    assert found.preparing.tolist() == [False, False, gone, False, False]
    assert found.host[2] == (15 if gone else 15 + CALL_NS / US) * US
    left = apply(schedule(*rows), READS).tasks
    assert left.duration[2] == (0 if gone else duration_us * US)


def reading(kind, pageable):
    """Steps of 1 ms that end in a copy right before a call that waits for it; times in µs."""
    script = Script()
    for start in range(0, 6_000, 1_000):

        def at(*times, start=start):
            return [int((start + each) * US) for each in times]

        script.range(f"ProfilerStep#{start // 1_000}", *at(0, 990))
        script.op("kernel", *at(100, 400), at(10, 20))
        script.op(kind, *at(410, 420), at(380, 390), pageable=pageable)
        script.call("cudaStreamSynchronize", *at(392, 430))
        script.op("kernel", *at(600, 700), at(580, 590))
    return script.build()


@pytest.mark.parametrize(
    ("kind", "pageable", "told"),
    [
        ("d2h", False, {"d2h": 1.0}),
        ("h2d", False, {"h2d_pinned": 1.0}),
        ("h2d", True, {"h2d_pageable": 1.0}),
    ],
)
def test_calls_are_counted_by_the_copy_that_they_wait_for(kind, pageable, told, tmp_path):
    path = kineto.write(reading(kind, pageable), tmp_path / "trace.json")
    (rank,) = traceprobe.analyze(traceprobe.load(path)).ranks
    assert rank.summary.host.awaited_copies == told

"""Blocks of iterations under conditions that take turns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from traceprobe.capture.oracle import blocks, step_clock
from traceprobe.capture.oracle.blocks import Condition, Unavailable, interleaved, warm_up

pytestmark = pytest.mark.usefixtures("pytorch")


def conditions(log, *names):
    @contextmanager
    def hold(name):
        log.append(f"+{name}")
        try:
            yield
        finally:
            log.append(f"-{name}")

    return [Condition(name, lambda name=name: hold(name)) for name in names]


def driven(generator, most=100_000):
    """What the generator returns, and how many iterations it asked for."""
    for count in range(most):
        try:
            next(generator)
        except StopIteration as end:
            return end.value, count
    raise AssertionError("it never ends")


def test_conditions_take_turns_and_every_round_begins_with_another():
    log = []
    made, _ = driven(interleaved(conditions(log, "a", "b", "c"), 3, 1e-9))
    entered = "".join(word[1] for word in log if word[0] == "+")
    assert entered == "abc" + "abc" + "bca" + "cab"
    assert [(b.condition, b.number) for b in made.blocks] == [
        (name, number) for number, names in enumerate(("abc", "bca", "cab")) for name in names
    ]
    # One at a time, and all are left.
    assert [word[0] for word in log] == ["+", "-"] * 12


@pytest.mark.parametrize(("late", "more"), [(0, 0), (6, 8), (10_000, blocks.MOST_CATCHING_UP)])
def test_a_block_begins_when_it_may_or_when_that_takes_too_long(late, more):
    asked = []

    def caught_up():
        return len(asked) >= blocks.LEAD_IN + late

    (condition,) = conditions([], "a")
    condition = replace(condition, caught_up=caught_up)
    for _ in interleaved([condition], 0, 1e-9):
        asked.append(1)
    assert len(asked) == blocks.LEAD_IN + more + blocks.PROBE


def test_steps_of_catching_up_are_wanted_too():
    (condition,) = conditions([], "a")
    made, asked = driven(interleaved([replace(condition, caught_up=lambda: False)], 2, 1e-9))
    assert asked == made.iterations == made.wanted


@pytest.mark.parametrize(("period", "turn", "steps"), [(1, 1, 4), (3, 1, 6), (3, 2, 6), (5, 3, 15)])
def test_blocks_are_whole_periods_and_turns(period, turn, steps):
    (condition,) = conditions([], "a")
    condition = replace(condition, turn=turn)
    made, asked = driven(interleaved([condition], 2, 1e-9, period))
    probed = {1: 3, 3: 3, 6: 6, 15: 15}[period * turn]
    assert made.steps == {"a": steps}
    assert asked == 3 * blocks.LEAD_IN + probed + 2 * steps
    assert [len(block.step_s) for block in made.blocks] == [steps, steps]
    for block in made.blocks:
        assert sum(block.step_s) == pytest.approx(block.seconds)


def test_workers_that_deliver_all_at_once_are_timed_by_whole_turns(monkeypatch):
    now, pulled = [0.0], []
    for module in (blocks, step_clock):
        monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def pull():
        pulled.append(1)
        now[0] += 0.6 if len(pulled) % 12 == 0 else 0.0

    (held,) = conditions([], "io")
    made, _ = driven(interleaved([replace(held, turn=12, pace=pull)], 2, 1.0))
    assert made.steps == {"io": 24}
    assert [block.seconds for block in made.blocks] == pytest.approx([1.2, 1.2])


def test_what_makes_its_own_steps_asks_for_none():
    made_by_pace = []
    (held,) = conditions([], "io")
    alone = replace(held, pace=lambda: made_by_pace.append(1))
    made, asked = driven(interleaved([alone], 1, 1e-9))
    assert asked == 0
    assert len(made_by_pace) == blocks.PROBE + made.steps["io"]


def test_what_a_program_lacks_is_absent_with_the_reason():
    def lacking():
        raise Unavailable("it has no loader")

    def broken():
        raise KeyError("x")

    log = []
    found = [Condition("a", lacking), *conditions(log, "b"), Condition("c", broken)]
    made, _ = driven(interleaved(found, 2, 1e-9))
    assert made.absent == {"a": "it has no loader", "c": "KeyError: 'x'"}
    assert [block.condition for block in made.blocks] == ["b", "b"]
    assert set(made.steps) == {"b"}


def test_a_loop_that_ends_early_leaves_the_condition():
    log = []
    running = interleaved(conditions(log, "a"), 2, 1e-9)
    next(running)
    assert log == ["+a"]
    running.close()
    assert log == ["+a", "-a"]


def test_the_warm_up_ends_when_the_pace_is_steady_and_is_bounded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(blocks.time, "perf_counter", lambda: now[0])

    def paced(durations):
        running = warm_up(2)
        for duration in durations:
            try:
                next(running)
            except StopIteration as end:
                return end.value
            now[0] += duration
        raise AssertionError("it never ends")

    assert paced([1e-3] * 100).steady
    slower = paced([1e-3 * 1.1**n for n in range(400)])
    assert not slower.steady
    assert slower.steps <= blocks.MOST_WARMUP

"""When a loop has come to its pace, and after how many steps it repeats itself."""

from __future__ import annotations

import random

import pytest

from traceprobe.capture.recording.steadiness import Steadiness, period


def watched(steps):
    watch = Steadiness()
    for step in steps:
        watch.add(step)
    return watch


def noisy(lengths, scatter=0.02, seed=0):
    chance = random.Random(seed)
    return [length * chance.gauss(1, scatter) for length in lengths]


@pytest.mark.parametrize("length", [2, 3, 5, 10, 25])
def test_an_evaluation_every_so_many_steps_is_a_period(length):
    steps = noisy(([10.0] * (length - 1) + [25.0]) * 4)
    assert period(steps) == length


@pytest.mark.parametrize("scatter", [0.0, 0.02, 0.2])
def test_steps_that_only_scatter_have_no_period(scatter):
    assert [period(noisy([10.0] * 40, scatter, seed)) for seed in range(20)] == [1] * 20


def test_two_repetitions_are_no_period_yet():
    assert period([1, 1, 1, 5, 1, 1, 1, 5]) == 1


def test_a_steady_loop_is_steady_and_a_start_is_not():
    assert watched([10.0] * 8).steady
    assert not watched([10.0] * 7).steady
    assert not watched([100.0, 90.0, 60.0, 40.0, 10.0, 10.0, 10.0, 10.0]).steady
    assert watched([100.0] * 5 + [10.0] * 8).steady


def test_one_long_step_is_no_trend():
    assert watched([10.0] * 6 + [40.0] + [10.0] * 3).steady


def test_a_loop_that_gets_slower_is_not_steady():
    slower = noisy([10 * 1.02**step for step in range(60)])
    assert [n for n in range(24, 61, 6) if watched(slower[:n]).steady] == []


def test_noise_about_one_pace_is_steady():
    assert sum(watched(noisy([10.0] * 24, 0.1, seed)).steady for seed in range(50)) >= 40


def test_the_period_is_no_trend():
    assert watched(([10.0] * 4 + [30.0]) * 6).steady


def test_long_steps_that_came_twice_are_watched_until_their_period_shows():
    steps = ([10.0] * 9 + [50.0]) * 5
    steady = [n for n in range(51) if watched(steps[:n]).steady]
    assert [n for n in steady if n >= 20] == list(range(44, 51))
    assert watched(steps).period == 10

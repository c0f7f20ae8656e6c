"""Windows that repeat: which are alike, and the smallest cycle that they form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceprobe.timeline import repetitions
from traceprobe.timeline.repetitions import (
    MOST_CYCLE,
    contents_of,
    covers,
    find_cycle,
    first_place,
)

KINDS = {
    "D": [40, 0, 0, 0],
    "G": [0, 40, 0, 0],
    "E": [40, 0, 20, 0],  # a D, and an evaluation after it
    "d": [39, 0, 0, 0],  # as good as a D
    "S": [0, 0, 0, 1],
    "A": [20, 29, 0, 2],  # an actor's update, of other parameters; the last name is an update's
    "B": [0, 45, 0, 0],  # other kernels, and no other update
}


UPDATING = np.array([False, False, False, True])


def windows(kinds):
    """Contents of windows, a letter each."""
    return np.array([KINDS[kind] for kind in kinds], dtype=np.int64)


def cycle_of(kinds, **options):
    return find_cycle(windows(kinds), **options)


def test_contents_are_counted_by_window_and_name():
    window, name = np.array([-1, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 2, 2])
    assert contents_of(window, name, 2).tolist() == [[0, 2, 0], [1, 0, 1]]


def test_of_many_windows_the_first_are_compared():
    many = np.arange(10_000)
    found = contents_of(many, np.zeros(10_000, dtype=np.int64), 10_000)
    assert found.shape == (4_096, 1)


@pytest.mark.parametrize(
    ("whole", "part", "expected"),
    [
        ([40, 20], [40, 0], True),
        ([38, 99], [40, 0], True),
        ([37, 99], [40, 0], False),
        ([40, 0], [40, 20], False),
        ([5], [0], False),
    ],
    ids=["more", "95 %", "92 %", "less", "nothing to cover"],
)
def test_a_window_covers_another_if_it_has_all_of_it(whole, part, expected):
    assert covers(np.array(whole), np.array(part)) == expected


@pytest.mark.parametrize(
    ("kinds", "length"),
    [
        ("DDDDDD", 1),
        ("DdDDdD", 1),
        ("DGDGDG", 2),
        ("DDGDDGDDG", 3),
        ("GDDGDDGDD", 3),
        ("DDDDEDDDDEDDDDE", 5),
        ("DDDDDDDDDDDDED", 1),
        ("DDGDDGEDG" * 3, 3),
        ("DDGEDG" * 4, 3),
    ],
)
def test_the_smallest_cycle_counts(kinds, length):
    assert cycle_of(kinds).length == length


def test_what_does_not_recur_forms_no_cycle():
    assert cycle_of("DGSEDDGGGSSEDE") is None


@settings(max_examples=40, deadline=None)
@given(st.text("DGE", min_size=1, max_size=6), st.integers(3, 8), st.integers(0, 5))
def test_any_word_that_is_repeated_is_found_from_any_letter_on(word, times, start):
    kinds = (word * (times + 1))[start % len(word) :]
    found = cycle_of(kinds)
    assert found is not None
    assert found.length <= len(word)
    assert found.fits.mean() >= repetitions.REGULAR


def test_a_cycle_is_not_longer_than_half_of_the_windows():
    assert cycle_of("D" * 3 + "G") is None
    long = np.arange(2 * (MOST_CYCLE + 1)) % (MOST_CYCLE + 1)
    assert find_cycle(np.eye(MOST_CYCLE + 1, dtype=np.int64)[long]) is None


def test_windows_that_differ_in_a_trait_are_of_different_kinds():
    traits = np.array([[0, 1, 0, 1, 0, 1]])
    assert find_cycle(windows("DDDDDD"), traits).length == 2


def test_what_a_loop_does_now_and_then_is_a_longer_cycle_only_where_it_is_asked_for():
    layers = "DDDDDDDDDDDG" * 3
    assert cycle_of(layers).length == 1
    assert cycle_of(layers, strict=True).length == 12


@pytest.mark.parametrize("before", [0, 1, 7])
def test_rare_work_that_comes_evenly_belongs_to_the_cycle(before):
    kinds = ("D" * 20 + "A") * 5
    found = cycle_of(kinds[before:], updating=UPDATING)
    assert found.length == 21
    assert found.fits.all()


@pytest.mark.parametrize(
    "kinds",
    [
        ("D" * 20 + "B") * 5,  # the last batch of an epoch, which is smaller; an evaluation
        ("D" * 20 + "E") * 5,  # does more: an evaluation
        ("D" * 20 + "A") * 2,
        "D" * 25 + "A" + "D" * 14 + "A" + "D" * 31 + "A" + "D" * 9,
    ],
    ids=["the same update", "more", "twice", "unevenly"],
)
def test_what_else_is_rare_does_not(kinds):
    assert cycle_of(kinds, updating=UPDATING).length == 1


def test_windows_at_the_ends_may_be_cut_and_what_happened_once_fits_no_cycle():
    kinds = "B" + ("D" * 20 + "A") * 5 + "S"
    assert cycle_of(kinds, updating=UPDATING).length == 21
    once = ("D" * 20 + "A") * 2 + "D" * 8 + "S" + "D" * 11 + "A" + ("D" * 20 + "A") * 2
    assert cycle_of(once, updating=UPDATING).length == 21


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        ("DDG" * 3, "DDG"),
        ("GDD" * 3, "DDG"),
        ("DDDDE" * 3, "DDDDE"),
        ("DDDDGE" * 3, "EDDDDG"),  # a rollout, which comes with the first update after it
        ("DGDG" * 3, "DG"),
    ],
)
def test_a_cycle_begins_after_the_work_that_no_other_window_does(kinds, first):
    cycle = cycle_of(kinds)
    place = first_place(cycle, windows(kinds))
    assert kinds[place : place + cycle.length] == first


def test_plain_windows_are_those_of_which_the_others_do_more():
    kinds = "DDDDE" * 3
    found = repetitions.plain_windows(cycle_of(kinds), windows(kinds))
    assert found.tolist() == [True] * 4 + [False]


def test_where_windows_do_something_else_none_is_plain():
    kinds = "DDG" * 3
    assert repetitions.plain_windows(cycle_of(kinds), windows(kinds)) is None


@pytest.mark.parametrize(("kinds", "kind"), [("DDGDDG", "D"), ("GGDGG", "G")])
def test_the_most_frequent_contents_are_those_of_a_window(kinds, kind):
    assert repetitions.most_frequent(windows(kinds)).tolist() == KINDS[kind]


CRITIC, GENERATOR, POLICY, VALUE = [40, 2, 0, 0], [40, 0, 0, 0], [0, 0, 30, 0], [0, 0, 0, 30]
ROLLOUT = [0, 50, 30, 0]


def test_three_updates_of_a_critic_and_one_of_a_generator_are_not_two_pairs():
    """What a critic runs is what a generator runs and more; it is no longer generator for that."""
    contents = np.array([*[CRITIC] * 3, GENERATOR] * 6)
    inputs = np.array([[1, 1, 1, 0] * 6])
    assert find_cycle(contents, inputs).length == 4
    evaluated = np.array([CRITIC, CRITIC, [60, 9, 9, 9], CRITIC, CRITIC, GENERATOR] * 4)
    assert find_cycle(evaluated, np.array([[1, 1, 1, 1, 1, 0] * 4])).length == 3


def test_updates_do_not_go_on_without_the_rollout_that_alone_has_an_input():
    contents = np.array([ROLLOUT, VALUE, *[POLICY, VALUE] * 3] * 4)
    rollouts = np.array([[1, *[0] * 7] * 4])
    assert find_cycle(contents, rollouts).length == 8
    everywhere = np.ones_like(rollouts)
    assert find_cycle(contents, everywhere).length == 2

"""Short kernels in a row: which are found, how often they are counted, what they save at most."""

from __future__ import annotations

import random
from itertools import product

import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script

US = 1000
ZERO = 1_000 * US
STEP = 2_000 * US
NAMES = {
    **{c: f"void at::native::vectorized_elementwise_kernel<4, {c}Functor>(int)" for c in "abcd"},
    "G": "ampere_sgemm_128x64_nn",
    "L": "void at::native::long_elementwise_kernel(int)",
}
STEPS = 4
USED = STEPS - 1
"""The capture ends in the last one."""
EVERY, DELAY, LENGTH = 20 * US, 5 * US, 4 * US
"""Launches begin this far apart, kernels that much later, and last so long, but for long ones."""


def loop(text, **columns):
    """Steps with a kernel for each letter: G multiplies matrices, L is long, the others short."""
    script = Script()
    for step in range(STEPS):
        start = ZERO + step * STEP
        script.range(f"ProfilerStep#{step}", start, start + STEP - US)
        for n, letter in enumerate(text):
            launch = start + 10 * US + n * EVERY
            t0 = launch + DELAY
            length = 11 * US if letter == "L" else LENGTH
            script.operator(f"aten::{letter}", launch - US, launch + 3 * US)
            script.op(
                "kernel", t0, t0 + length, (launch, launch + 2 * US), name=NAMES[letter], **columns
            )
    return script


def sequences(script, tmp_path):
    path = kineto.write(script.build(), tmp_path / "t.json")
    return traceprobe.analyze(traceprobe.load(path)).ranks[0].summary.sequences or []


def told(found):
    """Letters of the sequences, and how often a step has them."""
    return [
        ("".join(name.removeprefix("aten::") for name in each.operators), each.count / USED)
        for each in found
    ]


def test_what_comes_again_between_matrices_is_found_with_its_numbers(tmp_path):
    (found,) = sequences(loop("GabcGabcGabc"), tmp_path)
    assert told([found]) == [("abc", 3)]
    assert found.kernels == [NAMES[c] for c in "abc"]
    times = 3 * USED
    assert found.total_ns == times * 3 * LENGTH
    assert found.gap_ns == times * 2 * (EVERY - LENGTH)
    assert found.launch_ns == times * 2 * EVERY
    # The latency between the kernels, and the host's time, of which the GPU waits for more.
    assert found.bound_ns == times * (2 * DELAY + 2 * EVERY)
    assert found.saved_launches == 2 * times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abababab", [("ab", 4)]),  # not abab twice
        ("ababa", [("ab", 2)]),  # aba overlaps itself
        ("aaaaaa", []),  # one kernel is no series
        ("abLabL", [("ab", 2)]),  # a long kernel ends a run
        ("abcdGabcdGab", [("abcd", 2)]),  # of what is left, ab is once a step
        ("abcGabcGdcGdcGdc", [("abc", 2), ("dc", 3)]),
        ("abc", []),  # once a step is not often
    ],
)
def test_the_series_that_stands_for_most_launches_is_first(text, expected, tmp_path):
    assert told(sequences(loop(text), tmp_path)) == expected


def test_kernels_of_a_graph_save_the_gaps_alone(tmp_path):
    script, launch = Script(), 0
    for step in range(STEPS):
        start = ZERO + step * STEP
        script.range(f"ProfilerStep#{step}", start, start + STEP - US)
        launch = start + 10 * US
        for n in range(6):
            t0 = start + 30 * US + n * 6 * US
            script.op(
                *("kernel", t0, t0 + LENGTH, (launch, launch + 2 * US)),
                name=NAMES["abG"[n % 3]],
                api="cudaGraphLaunch",
                correlation=1000 + step,
                graph=True,
            )
    (found,) = sequences(script, tmp_path)
    assert (found.count, len(found.kernels)) == (2 * USED, 2)
    assert (found.gap_ns, found.launch_ns) == (2 * USED * 2 * US, 0)
    assert found.bound_ns == found.gap_ns


def by_hand(text):
    """Launches that the best series of a step stands for, by trying all."""
    runs = [run for run in text.replace("G", " ").split() if len(run) > 1]
    best = 0
    series = {run[i:j] for run in runs for i, j in product(range(len(run)), range(len(run) + 1))}
    for one in (each for each in series if len(each) > 1):
        again = any(one[n:] == one[:-n] for n in range(1, len(one) // 2 + 1))
        count = sum(run.count(one) for run in runs)
        if not again and count >= 2:
            best = max(best, count * (len(one) - 1))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_series_stands_for_more(seed, tmp_path):
    text = "".join(random.Random(seed).choices("aabbcG", k=40))
    found = sequences(loop(text), tmp_path)
    assert found[0].saved_launches == USED * by_hand(text)

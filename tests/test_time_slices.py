"""Another process on the GPU: told from kernels that take longer by one and the same time."""

from __future__ import annotations

import pytest

from tests.builders.kernels import KERNELS, kernels_lasting
from tests.written_traces import WRITERS, report_of_scenario

USUAL, SLICE = 1_000, 560
ITERATIONS = 9


def shared(extra, hit=lambda k, number: (2 * k + number) % 6 == 0):
    """Iterations of kernels of 1 ms; those that are hit take longer.

    Args:
        extra: µs, by iteration and kernel. hit: which are, by the same; two of twelve as it is.
    """
    return kernels_lasting(
        [
            [USUAL + (extra(k, number) if hit(k, number) else 0) for number in range(KERNELS)]
            for k in range(ITERATIONS)
        ]
    )


def test_without_iterations_to_compare_nobody_knows(tmp_path):
    report = report_of_scenario(kernels_lasting([USUAL] * 2), tmp_path)
    assert found(report).status == "not-applicable"


def found(report):
    return next(f for f in report.findings if f.id == "gpu-shared")


@pytest.mark.parametrize("writer", WRITERS, ids=["kineto", "nsight"])
def test_kernels_that_are_stopped_for_one_time_are_told(tmp_path, writer):
    report = report_of_scenario(shared(lambda k, number: SLICE), tmp_path, *writer)
    slices = report.ranks[0].slices
    steps = report.ranks[0].summary.iterations_used
    assert (slices.count, slices.slice_ns) == (2 * steps, SLICE * 1_000)
    assert slices.extra_ns == 2 * steps * SLICE * 1_000
    assert found(report).status == "warn"
    assert found(report).saving_ms_per_step == pytest.approx(2 * SLICE / 1e3)
    assert "0.560 ms longer" in found(report).evidence[0]


@pytest.mark.parametrize(
    "scenario",
    [
        kernels_lasting([USUAL] * ITERATIONS),
        shared(lambda k, number: 200 + 300 * (k % 3)),
        shared(lambda k, number: SLICE, hit=lambda k, number: number % 5 == 2 and k % 3 == 0),
        shared(lambda k, number: SLICE, hit=lambda k, number: k == 4 and number < 8),
        shared(lambda k, number: 60),
        kernels_lasting([[USUAL + SLICE * (k % 2)] * KERNELS for k in range(ITERATIONS)]),
        kernels_lasting([[USUAL + SLICE * (k % 2)] * KERNELS for k in range(ITERATIONS - 2)]),
        shared(lambda k, number: 2 * SLICE, hit=lambda k, number: number < 4 and k % 2),
    ],
    ids=[
        *("none", "any time", "one kernel", "one iteration", "too short"),
        *("turns, even", "turns, odd", "the same kernels in turns"),
    ],
)
def test_what_looks_different_is_no_other_process(tmp_path, scenario):
    report = report_of_scenario(scenario, tmp_path)
    assert found(report).status == "pass"

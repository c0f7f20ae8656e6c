"""The GPU's speed: told from many of the same kernels, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.kernels import KERNELS, kernels_lasting
from tests.builders.scenario import Script
from tests.written_traces import WRITERS, report_of_scenario
from traceprobe.verdict.thresholds import FIXED, Thresholds


def status(report):
    return next(f.status for f in report.findings if f.id == "clock-changed")


def used(report):
    return [i.index for i in report.ranks[0].iterations if i.used]


@pytest.mark.parametrize("writer", WRITERS, ids=["kineto", "nsight"])
def test_iterations_of_a_slower_clock_are_named_and_do_not_count(tmp_path, writer):
    report = report_of_scenario(kernels_lasting([220] * 3 + [100] * 6), tmp_path, *writer)
    assert status(report) == "warn"
    found = report.ranks[0].speed
    assert (found.slow, found.left_out, round(found.ratio, 3)) == ([0, 1, 2], [0, 1, 2], 2.2)
    assert used(report) == [3, 4, 5, 6, 7]
    assert report.ranks[0].summary.step_ms.mean == pytest.approx(KERNELS * 0.101)


def test_where_most_iterations_are_slow_these_are_the_pace(tmp_path):
    report = report_of_scenario(kernels_lasting([100] * 2 + [130] * 7), tmp_path)
    assert report.ranks[0].speed.left_out == [0, 1]
    assert used(report) == [2, 3, 4, 5, 6, 7]


def test_where_too_few_would_be_left_all_count_and_it_fails(tmp_path):
    report = report_of_scenario(kernels_lasting([200] * 2 + [100] * 3), tmp_path)
    assert status(report) == "fail"
    assert used(report) == [0, 1, 2, 3]


@pytest.mark.parametrize("ratio", [1.0, 1.05, 1.09])
def test_less_than_a_tenth_is_noise(tmp_path, ratio):
    assert (
        status(report_of_scenario(kernels_lasting([100 * ratio] * 4 + [100] * 5), tmp_path))
        == "pass"
    )


def test_a_few_slow_kernels_do_not_make_a_slow_clock(tmp_path):
    noisy = [300] * 3 + [100] * (KERNELS - 3)
    assert status(report_of_scenario(kernels_lasting([noisy] * 4 + [100] * 5), tmp_path)) == "pass"


def test_communication_that_waits_is_no_slow_clock(tmp_path):
    kinds = ("kernel",) * KERNELS + ("comm",) * 4
    waits = [100] * KERNELS + [2_000] * 4
    assert (
        status(report_of_scenario(kernels_lasting([waits] * 4 + [100] * 5, kinds=kinds), tmp_path))
        == "pass"
    )


@pytest.mark.parametrize(
    ("beside", "found"), [(range(4), "pass"), (range(9), "warn"), ((), "warn")]
)
def test_communication_beside_some_iterations_slows_their_kernels(tmp_path, beside, found):
    """Of two ranks that take turns in being late, each waits in it while its kernels run."""
    scenario = kernels_lasting([130] * 4 + [100] * 5, beside=beside)
    assert status(report_of_scenario(scenario, tmp_path)) == found


def test_iterations_that_take_turns_differ_in_their_work(tmp_path):
    assert status(report_of_scenario(kernels_lasting([130, 100] * 5), tmp_path)) == "pass"


@pytest.mark.parametrize("writer", WRITERS, ids=["kineto", "nsight"])
def test_batches_of_other_sizes_are_other_work(tmp_path, writer):
    sizes = [260] * 4 + [200] * 5
    lengths = [size / 2 for size in sizes]
    assert status(report_of_scenario(kernels_lasting(lengths), tmp_path, *writer)) == "warn"
    other = tmp_path / "sized"
    other.mkdir()
    assert (
        status(report_of_scenario(kernels_lasting(lengths, blocks=sizes), other, *writer)) == "pass"
    )


def test_runs_of_one_size_are_compared_all_the_same(tmp_path):
    report = report_of_scenario(kernels_lasting([220] * 3 + [100] * 6, blocks=[64] * 9), tmp_path)
    assert status(report) == "warn"


def test_a_run_on_a_cpu_has_no_gpu_clock(tmp_path):
    whole = kernels_lasting([100] * 6)
    operators = [(f"aten::mm_{n % KERNELS}", op.t0, op.t1) for n, op in enumerate(whole.ops)]
    script = Script()
    for name, t0, t1 in operators:
        script.operator(name, t0, t1, sequence=1)
    report = report_of_scenario(replace(script.build(), ranges=whole.ranges), tmp_path)
    assert status(report) == "not-applicable"


def test_enough_iterations_for_a_verdict_stay():
    assert FIXED.fewest_steady >= Thresholds().min_iterations

"""Findings about kernels and phases of computation, on records with exact numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import records
from tests.report_factory import MS
from tests.test_findings import evidence
from traceprobe.report.result import KERNEL_CLASSES
from traceprobe.verdict.findings import (
    lower_precision,
    optimizer_cost,
    recomputation,
    unaligned_matmul,
    unfused_kernels,
)

STEP = {"forward": 40, "backward": 50, "optimizer": 10}


def run(parts=STEP, gpu="NVIDIA H200", **kernels):
    """A rank of 100 ms a step whose kernels have these ms per step."""
    spent = {c: kernels.get(c, 0) * MS * records.STEPS for c in KERNEL_CLASSES}
    rank = records.rank(parts, kernel_ns=spent)
    return replace(rank, device=replace(rank.device, name=gpu))


def check(finding, rank):
    return finding.check(evidence(rank))


def test_fp32_matrices_on_tensor_core_hardware_could_be_faster():
    found = check(lower_precision, run(matmul_fp32=64, matmul_tf32=8, other=4))
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(64 * 15 / 16 + (8 + 4) / 2)


@pytest.mark.parametrize("gpu", ["Tesla V100-SXM2-16GB", "Tesla T4", "", "Quadro RTX 8000"])
def test_no_precision_is_advised_that_the_gpu_may_not_have(gpu):
    found = check(lower_precision, run(matmul_fp32=64, gpu=gpu))
    assert (found.status, found.saving_ms_per_step) == ("inconclusive", None)


@pytest.mark.parametrize(
    "gpu", ["NVIDIA A100-SXM4-80GB", "NVIDIA A40", "NVIDIA L4", "NVIDIA GeForce RTX 3090"]
)
def test_ampere_and_later_have_tensor_cores_for_tf32(gpu):
    assert check(lower_precision, run(matmul_fp32=64, gpu=gpu)).status == "warn"


def test_half_precision_is_not_told_to_go_lower():
    found = check(lower_precision, run(matmul_half=70, matmul_fp32=4, other=16))
    assert (found.status, found.saving_ms_per_step) == ("pass", None)


def test_unaligned_matrices_keep_an_eighth():
    found = check(unaligned_matmul, run(matmul_unaligned=40))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(35))
    assert check(unaligned_matmul, run(matmul_unaligned=4)).status == "pass"


def test_elementwise_kernels_could_be_fused():
    found = check(unfused_kernels, run(other=20, fused=5))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(20))
    assert check(unfused_kernels, run(other=19)).status == "pass"


def test_what_is_inside_a_whole_graph_is_not_guessed():
    assert check(unfused_kernels, run(other=1, unknown=60)).status == "inconclusive"


def test_the_optimizer_costs_what_its_kernels_take():
    found = check(optimizer_cost, run())
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(10))


def test_recomputation_costs_what_it_takes():
    found = check(recomputation, run({"forward": 60, "backward": 30, "recompute": 10}))
    assert (found.status, found.saving_ms_per_step) == ("warn", pytest.approx(10))


@pytest.mark.parametrize("finding", [lower_precision, unaligned_matmul, unfused_kernels])
def test_a_run_on_a_cpu_has_no_such_question(finding):
    assert check(finding, records.rank(STEP)).status == "not-applicable"

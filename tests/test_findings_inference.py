"""What is said of steps that train nothing, and of GPUs that no table knows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import finding_of
from traceprobe.model.taxonomy import KERNEL_CLASSES

NAMES = ("tf32-off", "lower-precision")


def rank(name="NVIDIA GeForce RTX 9999", capability="12.0", backward=0):
    """A rank whose kernels are products in fp32, on such a GPU."""
    whole = records.rank({"forward": 100, "backward": backward})
    products = (100 + backward) * records.MS * records.STEPS
    kernels = {**dict.fromkeys(KERNEL_CLASSES, 0), "matmul_fp32": products}
    device = replace(whole.device, name=name, capability=capability)
    return replace(whole, device=device, summary=replace(whole.summary, kernel_ns=kernels))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("capability", "status"),
    [("12.0", "warn"), ("8.0", "warn"), ("7.5", "inconclusive"), (None, "inconclusive")],
)
def test_the_capability_tells_what_an_unknown_gpu_has(name, capability, status):
    found = finding_of(name, rank(capability=capability))
    assert (found.status, found.saving_ms_per_step) == (status, None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu", ["NVIDIA GeForce RTX 9999", "NVIDIA H200"])
@pytest.mark.parametrize("backward", [0, 100])
def test_inference_has_no_loss(name, gpu, backward):
    capability = "9.0" if gpu.endswith("H200") else "12.0"
    advice = finding_of(name, rank(gpu, capability, backward)).advice
    assert ("loss" in advice) == bool(backward)
    assert ("compare the results" in advice) == (not backward)

"""Which kernels belong to attention that is not fused."""

from __future__ import annotations

import polars as pl
import pytest

from traceprobe.model.codes import Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.attention import FARTHEST, AttentionKernels, unfused_attention

NAMES = {
    "P": "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNN",
    "S": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>",
    "B": "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, false, false>",
    "L": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
    "e": "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>",
    "c": "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>",
    "t": "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
    "n": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
    "k": "void at::native::sbtopk::gatherTopK<c10::BFloat16, unsigned int, 2, false>",
    "m": "Memcpy DtoD (Device -> Device)",
}
LETTERS = list(NAMES)
PRODUCT, OTHER = 10, 1
"""ns of a product, and of anything else."""


def found(text, phase=Phase.FORWARD, streams=None, backward=0):
    """What belongs to attention in kernels that follow each other, one for each letter.

    Args:
        backward: how many of the last are of the backward pass.
    """
    phases = [int(phase)] * (len(text) - backward) + [int(Phase.BACKWARD)] * backward
    length = [PRODUCT if letter == "P" else OTHER for letter in text]
    t0 = [20 * n for n in range(len(text))]
    ops = pl.DataFrame(
        {
            "kind": [int(Kind.D2D if letter == "m" else Kind.KERNEL) for letter in text],
            "phase": phases,
            "stream": streams or [7] * len(text),
            "name": [LETTERS.index(letter) for letter in text],
            "t0": t0,
            "t1": [start + ns for start, ns in zip(t0, length, strict=True)],
        }
    )
    return unfused_attention(ops, list(NAMES.values()))


NOTHING = AttentionKernels(0, {}, 0)


def test_all_from_product_to_product_belongs_to_attention():
    expected = {"matmul_half": 20, "memory": 1, "other": 4, "softmax": 1}
    assert found("PnPemetSePnP") == AttentionKernels(1, expected, 20)


def test_backward_two_products_on_each_side_belong_to_it_and_fused_does_five():
    expected = {"matmul_half": 40, "other": 3, "softmax": 1}
    assert found("PnPPtBeePPnP", Phase.BACKWARD) == AttentionKernels(1, expected, 50)


@pytest.mark.parametrize(("text", "copies"), [("PcPSPc", 2), ("PtcPSPt", 1), ("PncPSPnc", 1)])
def test_copies_of_strided_tensors_beside_the_products_belong_to_it(text, copies):
    assert found(text).ns.get("other", 0) == copies


@pytest.mark.parametrize(
    "text", ["SeeP", "PeeS", "PeLeP", "P" + "e" * FARTHEST + "SP", "PeeeP"], ids=str
)
def test_a_softmax_without_products_is_of_something_else(text):
    assert found(text) == NOTHING


@pytest.mark.parametrize("text", ["PkSeP", "PSkeP", "PSmkP"])
def test_what_routes_tokens_to_experts_is_no_attention(text):
    assert found(text) == NOTHING
    assert found(f"{text}PPBPP", backward=5) == NOTHING
    attention = found(f"{text}PSPPPBPP", backward=5)
    assert attention == AttentionKernels(2, {"matmul_half": 60, "softmax": 2}, 70)


def test_products_of_another_stream_are_none_of_its():
    assert found("PSP", streams=[7, 7, 8]) == NOTHING


@pytest.mark.parametrize("text", ["cccPSP", "PSPccc"])
def test_copies_of_another_stream_are_none_of_its(text):
    assert found(text, streams=[1, 1, 1, 2, 2, 2]).ns == {"matmul_half": 20, "softmax": 1}


def test_a_product_between_two_softmaxes_counts_once():
    assert found("PSPSP") == AttentionKernels(2, {"matmul_half": 30, "softmax": 2}, 30)


def test_the_optimizer_has_no_attention():
    assert found("PSP", Phase.OPTIMIZER) == NOTHING

"""Which kernels belong to attention that is not fused."""

from __future__ import annotations

from math import prod

import polars as pl
import pytest

from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.events import HOST_OPERATORS
from traceprobe.model.operands import Operand
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
    "f": "void at::native::elementwise_kernel<128, 4, at::native::masked_fill_kernel>",
    "U": "void scaled_upper_triang_masked_softmax_warp_forward<c10::Half, c10::Half, float, 10>",
    "m": "Memcpy DtoD (Device -> Device)",
}
LETTERS = list(NAMES)
PRODUCT, OTHER = 10, 1
"""ns of a product, and of anything else."""


def found(text, phase=Phase.FORWARD, streams=None, backward=0, called=()):
    """What belongs to attention in kernels that follow each other, one for each letter.

    Args:
        backward: how many of the last are of the backward pass.
        called: names and operands of the operators that launched the first of them.
    """
    phases = [int(phase)] * (len(text) - backward) + [int(Phase.BACKWARD)] * backward
    length = [PRODUCT if letter == "P" else OTHER for letter in text]
    t0 = [20 * n for n in range(len(text))]
    ops = pl.DataFrame(
        {
            "kind": [int(Kind.D2D if letter == "m" else Kind.KERNEL) for letter in text],
            "phase": phases,
            "stream": streams or [7] * len(text),
            "thread": [0] * len(text),
            "launch_t0": t0,
            "name": [LETTERS.index(letter) for letter in text],
            "t0": t0,
            "t1": [start + ns for start, ns in zip(t0, length, strict=True)],
        }
    )
    columns = {
        "thread": [0] * len(called),
        "t0": [start - 5 for start in t0[: len(called)]],
        "t1": [start + 5 for start in t0[: len(called)]],
        "name": [len(NAMES) + n for n in range(len(called))],
        "operands": [UNKNOWN if given is None else n for n, (_, given) in enumerate(called)],
    }
    operators = pl.DataFrame(columns, schema={name: HOST_OPERATORS[name] for name in columns})
    names = [*NAMES.values(), *(name for name, _ in called)]
    return unfused_attention(ops, operators, names, [given or () for _, given in called])


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


SCORES = (17, 8, 64, 64)


def tensors(*shapes):
    return tuple(Operand("float", (shape,), (prod(shape),)) for shape in shapes)


def masked(name, operands, text="PfSPPPBPP", backward=5):
    """Share of the products that is hidden where the second kernel is of this operator."""
    called = [("aten::bmm", tensors((136, 64, 96), (136, 96, 64))), (name, operands)]
    attention = found(text, called=called, backward=backward)
    return attention.hidden_ns / attention.fused_ns


@pytest.mark.parametrize("name", ["aten::masked_fill", "aten::where", "aten::add", "aten::add_"])
@pytest.mark.parametrize("mask", [(64, 64), (1, 1, 64, 64)], ids=str)
def test_a_mask_by_query_and_key_hides_half_of_the_scores_forward_and_backward(name, mask):
    for operands in (tensors(SCORES, mask), tensors(mask, SCORES)):
        assert masked(name, operands) == 1 / 2
        assert masked(name, operands, "PeSPPPBPP") == 1 / 2


def expanded(shape, stored):
    return Operand("bool", (shape,), (stored,))


@pytest.mark.parametrize(
    "operands",
    [
        tensors(SCORES, (17, 1, 1, 64)),
        (*tensors(SCORES), expanded((17, 1, 64, 64), 17 * 64)),
        tensors(SCORES, (1, 8, 64, 64)),  # a bias of positions
        tensors((17, 8, 64, 80), (17, 1, 64, 80)),  # another sequence's keys
        tensors(SCORES, SCORES),
        tensors(SCORES),
        tensors((17, 64), (64, 64)),
        tensors((17, 8, 0, 0), (0, 0)),
    ],
    ids=str,
)
def test_masks_of_padding_and_biases_of_heads_hide_nothing(operands):
    assert masked("aten::masked_fill", operands) == 0


@pytest.mark.parametrize(
    ("scores", "mask"),
    [
        (SCORES, tensors((17, 1, 64, 64))[0]),
        ((64, 8, 64, 64), expanded((64, 1, 64, 64), 64 * 64)),
        ((2, 4, 8, 64, 64), tensors((1, 4, 1, 64, 64))[0]),  # windows
    ],
    ids=str,
)
def test_a_square_for_each_sample_may_be_causal_or_of_padding(scores, mask):
    called = [("aten::bmm", ()), ("aten::add", (*tensors(scores), mask))]
    assert found("PfSP", called=called).hidden_ns == 20 / 4


@pytest.mark.parametrize(("mask", "hidden"), [((64, 64), 20 / 2), ((17, 1, 64, 64), 20 / 4)])
def test_an_expanded_square_is_one_for_all_samples(mask, hidden):
    once = expanded((17, 1, 64, 64), 64 * 64) if len(mask) == 2 else tensors(mask)[0]
    called = [("aten::bmm", ()), ("aten::add", (*tensors(SCORES), once))]
    assert found("PfSP", called=called).hidden_ns == hidden


def test_other_operators_hide_nothing():
    assert masked("aten::mul", tensors(SCORES, (64, 64))) == 0


def test_a_mask_whose_form_is_not_recorded_may_hide_half_or_nothing():
    called = [("aten::bmm", None), ("aten::masked_fill", None)]
    assert found("PfSPPPBPP", called=called, backward=5).hidden_ns == round(70 / 4)
    assert found("PfSP").hidden_ns == 20 / 4
    assert found("PeSP").hidden_ns == 0
    fused = [("aten::bmm", ()), ("my_ops::masked_fill", tensors(SCORES, (17, 1, 1, 64)))]
    assert found("PfSP", called=fused).hidden_ns == 20 / 4


def test_a_kernel_may_be_named_after_a_causal_mask():
    assert found("PUP").hidden_ns == 20 / 2

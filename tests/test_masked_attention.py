"""Fused attention with a mask: which kernels it is, what of it is hidden, and what is told."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import finding_of
from tests.records import step
from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.operands import Operand
from traceprobe.model.taxonomy import KERNEL_CLASSES, Phase
from traceprobe.records.masked_attention import MaskedAttention as Record
from traceprobe.timeline.masked_attention import MaskedAttention, masked_attention

SAMPLES, HEADS, TOKENS, WIDTH = 4, 16, 512, 64
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_kernel0_0"
CUTLASS = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80"
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NAMES = [CUDNN, CUTLASS, PRODUCT, "aten::_cudnn_attention_forward"]
NS = 1_000


def tensor(*dims, stored=None):
    size = 1
    for each in dims:
        size *= each
    return Operand("c10::BFloat16", (dims,), (size if stored is None else stored,))


QUERIES = tensor(SAMPLES, HEADS, TOKENS, WIDTH)
BY_TOKEN = tensor(SAMPLES, TOKENS, HEADS, WIDTH)
ONE = TOKENS * TOKENS


OPERATORS = pl.DataFrame({"thread": [1], "t0": [10], "t1": [20], "name": [3], "operands": [0]})


def kernel(name=CUDNN, phase=Phase.FORWARD, thread=1):
    return pl.DataFrame(
        {
            "kind": [int(Kind.KERNEL)],
            "phase": [int(phase)],
            "thread": [thread],
            "launch_t0": [15],
            "name": [NAMES.index(name)],
            "t0": [100],
            "t1": [100 + NS],
        }
    )


def found(*operands, name=CUDNN, phase=Phase.FORWARD, queries=QUERIES):
    """What one kernel is told to be, that an operator launched with these operands."""
    given = (queries, queries, queries, *operands)
    return masked_attention(kernel(name, phase), OPERATORS, NAMES, [given])


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE])
@pytest.mark.parametrize(
    ("mask", "hidden"),
    [
        (tensor(1, 1, TOKENS, TOKENS), 1 / 2),
        (tensor(TOKENS, TOKENS), 1 / 2),
        (tensor(SAMPLES, HEADS, TOKENS, TOKENS, stored=ONE), 1 / 2),
        (tensor(SAMPLES, 1, TOKENS, TOKENS), 1 / 4),
        (tensor(SAMPLES, HEADS, TOKENS, TOKENS, stored=SAMPLES * ONE), 1 / 4),
    ],
    ids=["broadcast", "plain", "expanded", "of each sample", "of each sample, expanded"],
)
def test_a_mask_of_all_tokens_hides_a_part_of_the_scores(mask, hidden, phase):
    assert found(mask, phase=phase) == MaskedAttention(NS, hidden * NS)


def test_heads_may_come_after_tokens():
    mask = tensor(SAMPLES, HEADS, TOKENS, TOKENS, stored=ONE)
    assert found(mask, name=CUTLASS, queries=BY_TOKEN) == MaskedAttention(NS, NS / 2)


@pytest.mark.parametrize(
    "mask",
    [
        tensor(SAMPLES, 1, TOKENS, TOKENS, stored=SAMPLES * TOKENS),
        tensor(1, HEADS, TOKENS, TOKENS),
        tensor(SAMPLES, HEADS, TOKENS, TOKENS),
        tensor(1, 1, TOKENS, 2 * TOKENS),
        tensor(1, 1, 77, 77),
        tensor(SAMPLES, HEADS, TOKENS, 1),
    ],
    ids=[
        "of padding",
        "a bias of each head",
        "of each sample and head",
        "of other keys",
        "of something else",
        "sums of rows",
    ],
)
def test_other_tensors_hide_nothing_that_need_not_be_computed(mask):
    assert found(mask) is None


def test_only_fused_attention_counts_and_only_where_shapes_tell():
    mask = tensor(1, 1, TOKENS, TOKENS)
    assert found() is None
    assert found(mask, name=PRODUCT) is None
    assert found(mask, phase=Phase.OPTIMIZER) is None
    square = tensor(SAMPLES, HEADS, WIDTH, WIDTH)
    assert found(queries=square) is None


def test_without_operators_or_shapes_nothing_is_known():
    ops, mask = kernel(thread=UNKNOWN), (QUERIES, tensor(1, 1, TOKENS, TOKENS))
    assert masked_attention(ops, OPERATORS, NAMES, [mask]) is None
    assert masked_attention(ops, OPERATORS.clear(), NAMES, [mask]) is None
    assert masked_attention(ops, OPERATORS, NAMES, []) is None


def rank(ms, hidden_ms):
    """A rank of 1,000 ms a step, so much of it in attention with a mask."""
    ns = 1_000_000 * records.STEPS
    made = records.rank(step(backward=600))
    each = Record(ns=ms * ns, hidden_ns=hidden_ms * ns)
    kernels = dict.fromkeys(KERNEL_CLASSES, 0) | {"matmul_half": 900 * ns}
    return replace(made, summary=replace(made.summary, masked_attention=each, kernel_ns=kernels))


def test_what_a_kernel_without_the_mask_would_leave_is_told():
    finding = finding_of("attention-mask", rank(400, 200))
    assert finding.status == "warn"
    assert "`is_causal=True`" in finding.advice
    assert finding.evidence[0].startswith("400 ms per step (40.0 %) in fused attention with")
    assert "50 % of the scores" in finding.evidence[0]
    assert finding.saving_ms_per_step == pytest.approx(300)


@pytest.mark.parametrize(("ms", "status"), [(60, "pass"), (80, "warn")])
def test_little_attention_is_left_alone(ms, status):
    assert finding_of("attention-mask", rank(ms, ms // 2)).status == status


def test_a_rank_without_it_takes_part_in_the_mean():
    without = records.rank(step(backward=600))
    assert finding_of("attention-mask", without).status == "not-applicable"
    assert (
        finding_of("attention-mask", rank(400, 200), without)
        .evidence[0]
        .startswith("200 ms per step")
    )


def test_more_cannot_be_hidden_than_is_computed():
    assert list(Record(ns=1, hidden_ns=2).problems())
    assert not list(Record(ns=2, hidden_ns=1).problems())

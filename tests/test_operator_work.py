"""Operations and bytes of operators: as PyTorch counts them in real programs, and by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operands import BF16, FP32, half, operands, single
from traceprobe.ingest.kineto.event import Args
from traceprobe.ingest.kineto.operands import LONGEST, OperandTable, OperandTexts, read_operands
from traceprobe.timeline.operator_work import Work, work_of

Q, KV = half(2, 8, 64, 32), half(2, 8, 128, 32)
PAIRS = 64 * 128
SEEN = 64 * 65 // 2
"""Of them, those that a causal mask leaves: query i sees keys 0 to i."""

BY_HAND = {
    "mm": ("aten::mm", [half(16, 32), half(32, 8)], 2 * 16 * 32 * 8, 2 * (512 + 256 + 128)),
    "addmm": (
        "aten::addmm",
        [single(8), single(16, 32), single(32, 8), 1, 1],
        2 * 16 * 32 * 8,
        4 * (8 + 512 + 256 + 128),
    ),
    "bmm": ("aten::bmm", [half(3, 4, 5), half(3, 5, 6)], 2 * 3 * 4 * 5 * 6, 2 * (60 + 90 + 72)),
    "linear": (
        "aten::linear",
        [half(2, 7, 32), half(8, 32), half(8)],
        2 * 14 * 32 * 8,
        2 * (448 + 256 + 8 + 112),
    ),
    "convolution with a stride": (
        "aten::cudnn_convolution",
        [half(2, 3, 9, 9), half(4, 3, 3, 3), [1, 1], [2, 2], [1, 1], 1, False, False, True],
        2 * 2 * 25 * 4 * 27,  # 9 and a border of 1 on each side, by 2: 5 x 5
        2 * (2 * 3 * 81 + 4 * 27 + 2 * 4 * 25),
    ),
    "convolution in groups": (
        "aten::convolution",
        [half(2, 8, 9), half(8, 1, 3), None, [1], [0], [2], False, [0], 8],
        2 * 2 * 5 * 8 * 3,
        2 * (2 * 8 * 9 + 24 + 2 * 8 * 5),
    ),
    "transposed convolution": (
        "aten::convolution",
        [half(2, 8, 5), half(8, 4, 2), half(4), [2], [0], [1], True, [0], 1],
        2 * 2 * 5 * 8 * 4 * 2,
        2 * (2 * 8 * 5 + 64 + 4 + 2 * 4 * 10),
    ),
    "both gradients of a convolution": (
        "aten::convolution_backward",
        [
            *(half(2, 4, 7, 7), half(2, 3, 9, 9), half(4, 3, 3, 3), [4], [1, 1], [0, 0], [1, 1]),
            *(False, [0, 0], 1, "[True, True, False]"),
        ],
        2 * (2 * 2 * 49 * 4 * 27),
        2 * (2 * 4 * 49 + 108 + 2 * 3 * 81 + 2 * 3 * 81 + 108),
    ),
    "the gradient of the weight alone": (
        "aten::convolution_backward",
        [
            *(half(2, 4, 7, 7), half(2, 3, 9, 9), half(4, 3, 3, 3), [4], [1, 1], [0, 0], [1, 1]),
            *(False, [0, 0], 1, "[False, True, False]"),
        ],
        2 * 2 * 49 * 4 * 27,
        2 * (2 * 4 * 49 + 2 * 3 * 81 + 108),
    ),
    "attention": (
        "aten::_scaled_dot_product_flash_attention",
        [Q, KV, KV, 0.0, False, False, 0.125],
        2 * 2 * 16 * PAIRS * 32,
        2 * (2 * 16 * 64 * 32 + 2 * 16 * 128 * 32),
    ),
    "causal attention": (
        "aten::_scaled_dot_product_flash_attention",
        [Q, KV, KV, 0.0, True, False, 0.125],
        2 * 2 * 16 * SEEN * 32,
        2 * (2 * 16 * 64 * 32 + 2 * 16 * 128 * 32),
    ),
    "its gradients": (
        "aten::_scaled_dot_product_flash_attention_backward",
        [Q, Q, KV, KV, Q, single(2, 8, 64), None, None, 64, 128, 0.0, True, None, None, 0.125],
        5 * 2 * 16 * SEEN * 32,
        # Gradient of the output, query, output; key, value; sums of the scores; three gradients.
        2 * (3 * 2 * 8 * 64 * 32 + 2 * 2 * 8 * 128 * 32)
        + 4 * 2 * 8 * 64
        + 2 * (2 * 8 * 64 * 32 + 2 * 2 * 8 * 128 * 32),
    ),
    "layer norm": (
        "aten::native_layer_norm",
        [single(4, 10), [10], single(10), single(10), 1e-5],
        0,
        4 * (40 + 10 + 10 + 40),
    ),
    "softmax": ("aten::_softmax", [half(4, 10), 1, False], 0, 2 * 80),
    "a sum in place": ("aten::add_", [single(4, 10), half(4, 10), 1], 0, 4 * 80 + 2 * 40),
    "a broadcast sum of two types": (
        "aten::add",
        [half(4, 1), single(10), 1],
        0,
        2 * 4 + 4 * 10 + 4 * 40,
    ),
    "a product with a number": ("aten::mul", [half(4, 10), ([], "double")], 0, 2 * 80),
    "a result that is written to a tensor that was there": (
        "aten::clamp_min",
        [single(4, 10), 0, single(4, 10)],
        0,
        4 * 80,
    ),
    "squares added to a moment": (
        "aten::addcmul_",
        [single(4, 10), single(4, 10), single(4, 10), 1],
        0,
        4 * 120,
    ),
    "rows that are looked up": (
        "aten::index_select",
        [half(100, 16), 0, ([5], "long int")],
        0,
        8 * 5 + 2 * 2 * 5 * 16,
    ),
    "a comparison": ("aten::gt", [single(4, 10), ([], "double")], 0, 4 * 40 + 40),
    "a copy to another type": ("aten::copy_", [half(4, 10), single(4, 10), False], 0, 6 * 40),
    "zeros": ("aten::zero_", [half(4, 10)], 0, 2 * 40),
    "a mean": ("aten::mean", [single(4, 10), None], 0, 4 * 40),
    "dropout": ("aten::native_dropout", [half(4, 10), 0.1, True], 0, 2 * 80 + 40),
    "embedding": (
        "aten::embedding",
        [half(1000, 16), ([4, 5], "long int"), -1, False, False],
        0,
        8 * 20 + 2 * 2 * 20 * 16,
    ),
    "a fused kernel": ("triton_poi_fused_add_gelu_3", [half(4, 10), half(4, 10), 40], 0, 2 * 80),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    name, called, flops, moved = BY_HAND[case]
    found = work_of(name, operands(*called))
    assert (found.flops, found.bytes) == (flops, moved)


def test_the_precision_is_that_of_the_factors():
    assert work_of("aten::mm", operands(half(4, 4), half(4, 4))).precision == "bf16"
    assert (
        work_of("aten::addmm", operands(single(4), single(4, 4), single(4, 4))).precision == "fp32"
    )
    assert work_of("aten::mm", operands(([4, 4], "int"), ([4, 4], "int"))).precision == ""


def test_what_is_expanded_is_in_memory_once():
    dims, types = b"[[4, 10], [4, 10]]", b'["float", "float"]'
    expanded = read_operands(dims, types, b"[[10, 1], [0, 1]]")
    assert work_of("aten::mul", expanded) == Work(0, 4 * (40 + 10 + 40), "fp32")


UNKNOWN = {
    "an operator that nobody knows": ("custom::op", [half(4, 4)]),
    "tensors of unknown type": ("aten::cat", [([4, 4], "TensorList"), 0]),
    "elements of unknown type": ("aten::add", [([4, 4], "Mystery"), 1]),
    "a convolution without its stride": ("aten::cudnn_convolution", [half(2, 3, 9, 9)] * 2),
    "attention that may be causal": (
        "aten::_scaled_dot_product_flash_attention",
        [Q, KV, KV, 0.0, "", False],
    ),
    "packed sequences": (
        "aten::_flash_attention_forward",
        [half(99, 8, 32)] * 3 + [([5], "int"), ([5], "int"), 64, 64, 0.0, True, False],
    ),
    "factors that do not fit": ("aten::mm", [half(4, 5), half(4, 5)]),
    "a lookup in a fused kernel": ("triton_poi_fused_embedding_add_0", [half(50000, 768), 4]),
    "no arguments": ("aten::mm", []),
    "no elements": ("aten::mul", [half(0, 4), half(0, 4)]),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_is_not_guessed(case):
    name, called = UNKNOWN[case]
    found = operands(*called) if called else ()
    assert work_of(name, found) is None


NAMES = sorted({case[0] for case in (*BY_HAND.values(), *UNKNOWN.values())})
ANY_TENSOR = st.tuples(
    st.lists(st.integers(0, 1 << 40), max_size=6), st.sampled_from([BF16, FP32, "x"])
)
ANY_SCALAR = st.one_of(
    st.integers(-5, 5), st.lists(st.integers(-5, 5), max_size=3), st.text(max_size=4)
)


@given(st.sampled_from(NAMES), st.lists(st.one_of(ANY_TENSOR, ANY_SCALAR), max_size=12))
def test_any_operands_have_work_that_can_be_or_none(name, called):
    dims = [each[0] if isinstance(each, tuple) else [] for each in called]
    types = [each[1] if isinstance(each, tuple) else "Scalar" for each in called]
    values = ["" if isinstance(each, tuple) else str(each) for each in called]
    found = read_operands(*map(msgspec.json.encode, (dims, types, [], values)))
    work = None if found is None else work_of(name, found)
    assert work is None or (work.flops >= 0 and work.bytes >= 0)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=12,
)


@given(st.lists(JSON, min_size=4, max_size=4))
def test_operands_of_any_form_are_read_or_left_out(noted):
    texts = []
    for value in noted:
        try:
            texts.append(msgspec.json.encode(value))
        except UnicodeEncodeError:
            texts.append(b"null")
    for found in read_operands(*texts) or ():
        assert all(0 <= n < 1 << 50 for dims in found.dims for n in dims)


def args(dims, types=b'["float"]'):
    return Args(dims=msgspec.Raw(dims), types=msgspec.Raw(types))


def numbered(table, names, *chunks):
    """Numbers in a trace of the operands of each chunk's calls."""
    found = []
    for calls in chunks:
        texts = OperandTexts()
        numbers = texts.numbers(names, calls)
        found.append([*table.numbers(texts.found), -1])
        found[-1] = [int(found[-1][n]) for n in numbers]
    return found


def test_the_same_operands_have_one_number():
    table = OperandTable()
    first = [args(b"[[2]]"), args(b"[[3]]"), args(b"[[2]]"), Args(), args(b"[[-1]]"), args(b"7")]
    again = [args(b"[[4]]"), args(b"7"), args(b"[[3]]"), Args(), args(b"[[2]]"), args(b"[[4]]")]
    found = numbered(table, ["a", "b", "c", "d", "e", "f"], first, again)
    assert found == [[0, 1, 0, -1, -1, -1], [2, -1, 1, -1, 0, 2]]
    assert [found[0].dims for found in table.found] == [((2,),), ((3,),), ((4,),)]


def test_operands_are_bounded(monkeypatch):
    monkeypatch.setattr("traceprobe.ingest.kineto.operands.MOST", 2)
    table = OperandTable()
    long = b"[" + b"[1]," * LONGEST + b"[1]]"
    calls = [args(long), args(b"[[1]]"), args(b"[[2]]"), args(b"[[3]]"), args(b"[[1]]")]
    assert numbered(table, ["a"] * 5, calls, calls) == [[-1, 0, 1, -1, 0]] * 2


def programs():
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(32, 96)

        def forward(self, x):
            q, k, v = self.project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            return scaled_dot_product_attention(q, k, v)

    class Products(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 8, 6))

        def forward(self, x):
            return torch.baddbmm(torch.zeros(3, 5, 6), x, self.weight)

    norm = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    images = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 4, 3, dilation=2), nn.ConvTranspose2d(4, 3, 2, stride=2)),
    )
    return {
        "linear": (norm, torch.randn(6, 16)),
        "images": (images, torch.randn(2, 3, 17, 17)),
        "sequences": (nn.Conv1d(4, 6, 5, padding=2), torch.randn(3, 4, 20)),
        "volumes": (nn.Conv3d(2, 3, 2), torch.randn(2, 2, 5, 5, 5)),
        "products": (Products(), torch.randn(3, 5, 8)),
        "attention": (Attention(), torch.randn(2, 16, 32)),
        "transformer": (
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True),
            torch.randn(2, 10, 32),
        ),
    }


def counted(trace):
    """Operations of the operators of a trace, inner ones of others not counted again."""
    rows = sorted(
        (event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"),
        key=lambda event: (event["tid"], event["ts"], -event["dur"]),
    )
    total, thread, end = 0, None, 0.0
    for event in rows:
        if (event["tid"] != thread) or event["ts"] >= end:
            noted = [event["args"].get(key, []) for key in NOTED]
            work = work_of(event["name"], read_operands(*map(msgspec.json.encode, noted)) or ())
            if work is not None and work.flops:
                total += work.flops
                thread, end = event["tid"], event["ts"] + event["dur"]
    return total


NOTED = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


@pytest.mark.parametrize(
    "program",
    ["linear", "images", "sequences", "volumes", "products", "attention", "transformer"],
)
def test_operations_are_those_that_pytorch_counts(program, tmp_path):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import (
        FlopCounterMode,
        sdpa_backward_flop_count,
        sdpa_flop_count,
    )

    model, batch = programs()[program]
    batch.requires_grad_(True)
    # PyTorch's formulas of attention, under the names that it has on a CPU.
    own = torch.ops.aten
    of_cpu = {
        own._scaled_dot_product_flash_attention_for_cpu: (
            lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
        ),
        own._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda gradient, q, k, v, *_, **__: sdpa_backward_flop_count(gradient, q, k, v)
        ),
    }
    with FlopCounterMode(display=False, custom_mapping=of_cpu) as counter:
        model(batch).sum().backward()
    expected = counter.get_total_flops()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profile:
        model(batch).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    assert counted(msgspec.json.decode((tmp_path / "trace.json").read_bytes())) == expected > 0

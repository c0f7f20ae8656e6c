"""Operations and least bytes of a call of an operator, by its name and what it was called with.

Operations are two for each multiplication with its addition, by the formulas of
`torch.utils.flop_counter`, but for two things that kernels leave out: what a causal mask hides, and
products between groups of a convolution. Bytes are each operand read once and each result written
once, as `timeline.operator_traffic` says. What is not known here stays unknown: there is no guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import msgspec

from traceprobe.model.operands import Operand, Operands
from traceprobe.timeline.operator_traffic import Unknown, item_bytes, read, traffic

_PRECISIONS: Mapping[str, str] = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "Half": "fp16",
    "float": "fp32",
    "double": "fp64",
    **{f"c10::Float8_e{form}": "fp8" for form in ("4m3fn", "4m3fnuz", "5m2", "5m2fnuz")},
}
"""Of the elements that are multiplied."""
_OF_BACKWARD = 5
"""Matrix products of attention in its backward pass, which computes the scores once more."""
WINOGRAD, LARGEST_WINOGRAD = 2, 3
"""By how much libraries cut the multiplications of a convolution in each dimension at most:
Winograd's algorithms for tiles of 4 and kernels of 3 (Lavin and Gray, arXiv:1509.09308) take 6
instead of 12. For kernels beyond the second number they, or Fourier transforms, may cut more."""
_MOST = 1 << 60
"""No call has so many operations or bytes."""

Count = tuple[int, int]
"""Operations and bytes."""
Sizes = Sequence[int]


class Work(msgspec.Struct, frozen=True):
    """What a call computes and moves at least.

    Args:
        flops: floating point operations of matrix products; 0 where there are none.
        bytes: of operands and results.
        precision: of the elements that are multiplied, or else that of the first tensor, as
            `records.roofline` names them ("fp32" may run as TF32); "" for other types.
        least: of the operations, those that no other way to compute the same leaves out.
    """

    flops: int
    bytes: int
    precision: str
    least: int = 0


def work_of(name: str, operands: Operands) -> Work | None:
    """The work of a call, None where it is not known.

    Args:
        name: of the operator, as PyTorch writes it: "aten::addmm".
    """
    base = name.removeprefix("aten::")
    formula = _FORMULAS.get(base)
    try:
        if formula is None:
            flops, moved = 0, traffic(base, operands)
        else:
            flops, moved = formula(operands)
    except (Unknown, IndexError, ValueError):
        return None
    if not 0 < max(flops, moved) < _MOST:
        return None
    factor = next((each for each in reversed(operands[:3]) if each.dims and each.dims[0]), None)
    precision = "" if factor is None else _PRECISIONS.get(factor.type, "")
    return Work(flops, moved, precision, _least(base, operands, flops))


def _least(base: str, operands: Operands, flops: int) -> int:
    """Operations that every way to compute the same takes.

    A batch of products may be of attention, of which a causal mask hides half, as may what is
    added to its scores; scores that are kept need not be computed again. Convolutions have faster
    algorithms, where libraries have them: at stride 1.
    """
    formula = _FORMULAS.get(base)
    if base in ("bmm", "baddbmm", "baddbmm_"):
        return flops // 2
    if "attention" in base:
        kept = flops * (_OF_BACKWARD - 1) // _OF_BACKWARD if "backward" in base else flops
        return kept // 2 if _adds_to_scores(operands) else kept
    if isinstance(formula, _Convolution):
        return _least_convolution(flops, operands[1], operands[formula.stride])
    if base == "convolution_backward":
        return _least_convolution(flops, operands[2], operands[4])
    return flops


def _adds_to_scores(operands: Operands) -> bool:
    """Whether a call of attention may be given a mask: a tensor with a number for each score."""
    shapes = [each.dims[0] for each in operands if len(each.dims) == 1 and len(each.dims[0]) == 4]
    lengths = {n for shape in shapes[:3] for n in shape[1:3]}
    return any(shape[2] in {1, *lengths} and shape[3] in lengths for shape in shapes)


def _least_convolution(flops: int, weight: Operand, strides: Operand) -> int:
    try:
        kernel = _shape(weight)[2:]
        if max(kernel) == 1 or min(_numbers(strides, len(kernel))) > 1:
            return flops
    except (Unknown, ValueError):
        return 0
    cut = WINOGRAD ** sum(size > 1 for size in kernel)
    return flops // cut if max(kernel) <= LARGEST_WINOGRAD else 0


def _shape(operand: Operand, rank: int | None = None) -> Sizes:
    """Sizes of a tensor.

    Raises:
        Unknown: it is none, or has another number of dimensions.
    """
    if len(operand.dims) != 1 or (rank is not None and len(operand.dims[0]) != rank):
        raise Unknown
    return operand.dims[0]


def _numbers(operand: Operand, count: int) -> list[int]:
    """A list of whole numbers; a single one stands for as many as are asked for."""
    found = [int(text) for text in operand.value.strip("[]").split(",")]
    if len(found) == 1:
        found *= count
    if len(found) != count:
        raise Unknown
    return found


def _flag(operand: Operand) -> bool:
    if operand.value not in ("True", "False"):
        raise Unknown
    return operand.value == "True"


def _product(*numbers: int) -> Callable[[Operands], Count]:
    """Matrices times matrices, one or a batch. `numbers`: where factors are, and what is added."""
    left, right, *added = numbers

    def count(operands: Operands) -> Count:
        a, b = (_shape(operands[n]) for n in (left, right))
        if len(a) not in (2, 3) or len(a) != len(b) or a[-1] != b[-2] or a[:-2] != b[:-2]:
            raise Unknown
        rows = prod(a[:-1])
        moved = read(operands[n] for n in (left, right, *added))
        return 2 * rows * a[-1] * b[-1], moved + rows * b[-1] * item_bytes(operands[left])

    return count


def _linear(operands: Operands) -> Count:
    """`input` [..., k] times the transpose of `weight` [n, k]."""
    x, weight = _shape(operands[0]), _shape(operands[1], 2)
    if not x or x[-1] != weight[1]:
        raise Unknown
    rows = prod(x[:-1])
    written = rows * weight[0] * item_bytes(operands[0])
    return 2 * rows * prod(weight), read(operands[:3]) + written


class _Convolution(msgspec.Struct, frozen=True):
    """Where a signature has stride, padding and dilation; and what only transposed ones need."""

    stride: int
    padding: int
    dilation: int
    bias: int | None = None
    groups: int | None = None
    transposed: int | bool = False
    more: int | None = None
    """`output_padding`."""

    def __call__(self, operands: Operands) -> Count:
        x, weight = _shape(operands[0]), _shape(operands[1])
        if len(x) < 3 or len(weight) != len(x):
            raise Unknown
        places = len(x) - 2
        stride, padding, dilation = (
            _numbers(operands[n], places) for n in (self.stride, self.padding, self.dilation)
        )
        if min(stride) < 1:
            raise Unknown
        transposed = self.transposed
        if not isinstance(transposed, bool):
            transposed = _flag(operands[transposed])
        reach = [d * (k - 1) for d, k in zip(dilation, weight[2:], strict=True)]
        if transposed:
            groups = 1 if self.groups is None else _numbers(operands[self.groups], 1)[0]
            extra = [0] * places if self.more is None else _numbers(operands[self.more], places)
            rows = zip(x[2:], stride, padding, reach, extra, strict=True)
            out = [(n - 1) * s - 2 * p + r + e + 1 for n, s, p, r, e in rows]
            channels, walked = weight[1] * groups, x[2:]
        else:
            rows = zip(x[2:], stride, padding, reach, strict=True)  # type: ignore[assignment]
            out = [(n + 2 * p - r - 1) // s + 1 for n, s, p, r in rows]  # type: ignore[misc]
            channels, walked = weight[0], out
        if min(out) < 0:
            raise Unknown
        written = x[0] * channels * prod(out) * item_bytes(operands[0])
        used = [operands[0], operands[1]] + ([] if self.bias is None else [operands[self.bias]])
        return 2 * x[0] * prod(walked) * prod(weight), read(used) + written


def _convolution_backward(operands: Operands) -> Count:
    """Each of the gradients takes as much as the forward pass.

    The signature: grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
    output_padding, groups, output_mask.
    """
    gradient, x, weight = (_shape(operands[n]) for n in range(3))
    mask = operands[10].value.strip("[]").split(", ")
    if len(mask) != 3 or not set(mask) <= {"True", "False"} or len(gradient) != len(x):
        raise Unknown
    of_input, of_weight = (each == "True" for each in mask[:2])
    walked = (x if _flag(operands[7]) else gradient)[2:]
    one = 2 * x[0] * prod(walked) * prod(weight)
    moved = read(operands[:1])
    for wanted, other, size in ((of_input, operands[2], x), (of_weight, operands[1], weight)):
        if wanted:  # reads the other factor, writes its own gradient
            moved += read([other]) + prod(size) * item_bytes(operands[0])
    return one * (of_input + of_weight), moved


def _attention(causal: int, *added: int, first: int = 0, heads: int = 1) -> Callable[..., Count]:
    """Fused attention.

    Args:
        causal: where the signature says that later keys are hidden.
        added: other operands that are read.
        first: of query, key and value, after the gradient of the output in the backward pass.
        heads: dimension that counts heads, 1 or 2; the other one counts positions.
    """

    def count(operands: Operands) -> Count:
        q, k, v = (_shape(each, 4) for each in operands[first : first + 3])
        place = 3 - heads
        queries, keys = q[place], k[place]
        if q[0] != k[0] or q[3] != k[3] or k[:3] != v[:3]:
            raise Unknown
        pairs = queries * keys
        if _hides(operands[causal]):  # query i sees keys up to its own
            seen = min(queries, keys)
            pairs = seen * (seen + 1) // 2 + (queries - seen) * keys
        of_scores = 2 * q[0] * q[heads] * pairs * q[3]
        of_values = 2 * q[0] * q[heads] * pairs * v[3]
        out = prod(q[:3]) * v[3] * item_bytes(operands[first])
        if not first:
            return of_scores + of_values, read([*operands[:3], *_of(operands, added)]) + out
        gradients = read(operands[first : first + 3])
        moved = read([*operands[: first + 3], *_of(operands, added)]) + gradients
        # The scores again and two products of theirs; two of the values.
        return 3 * of_scores + (_OF_BACKWARD - 3) * of_values, moved

    return count


def _hides(operand: Operand) -> bool:
    """Whether a causal mask is on: a flag, or a type of mask of which 0 is none, 1 this one."""
    if operand.value in ("0", "1"):
        return operand.value == "1"
    return _flag(operand)


def _of(operands: Operands, places: Sequence[int]) -> list[Operand]:
    return [operands[n] for n in places if operands[n].dims]


def _whole(formula: Callable[[Operands], Count], *unused: int) -> Callable[[Operands], Count]:
    """A formula for calls without some arguments: sequences of several lengths are packed."""

    def count(operands: Operands) -> Count:
        if any(operands[n].dims for n in unused):
            raise Unknown
        return formula(operands)

    return count


_FORMULAS: Mapping[str, Callable[[Operands], Count]] = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm"), _product(0, 1)),
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation"), _product(1, 2, 0)),
    **dict.fromkeys(("baddbmm", "baddbmm_"), _product(1, 2, 0)),
    "linear": _linear,
    "convolution": _Convolution(3, 4, 5, bias=2, groups=8, transposed=6, more=7),
    "_convolution": _Convolution(3, 4, 5, bias=2, groups=8, transposed=6, more=7),
    "convolution_overrideable": _Convolution(3, 4, 5, bias=2, groups=8, transposed=6, more=7),
    "cudnn_convolution": _Convolution(3, 2, 4),
    "cudnn_convolution_relu": _Convolution(3, 4, 5, bias=2),
    "cudnn_convolution_transpose": _Convolution(4, 2, 5, groups=6, transposed=True, more=3),
    "miopen_convolution": _Convolution(4, 3, 5, bias=2),
    "miopen_depthwise_convolution": _Convolution(4, 3, 5, bias=2),
    "mkldnn_convolution": _Convolution(4, 3, 5, bias=2),
    "_conv_depthwise2d": _Convolution(4, 5, 6, bias=3),
    "conv_depthwise3d": _Convolution(4, 5, 6, bias=3),
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6, 3),
    "_scaled_dot_product_cudnn_attention": _attention(6, 3),
    "_flash_attention_forward": _whole(_attention(8, heads=2), 3, 4),
    "_efficient_attention_forward": _whole(_attention(9, 3, heads=2), 4, 5),
    # The output and the sums of the scores are read again.
    "_scaled_dot_product_flash_attention_backward": _attention(11, 4, 5, first=1),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(7, 4, 5, first=1),
    "_scaled_dot_product_efficient_attention_backward": _attention(11, 4, 5, 6, first=1),
    "_scaled_dot_product_cudnn_attention_backward": _attention(14, 4, 5, 8, first=1),
    "_cudnn_attention_forward": _whole(_attention(10, 3), 4, 5),
    "_cudnn_attention_backward": _whole(_attention(14, 4, 5, 8, first=1), 9, 10),
    "_efficient_attention_backward": _whole(_attention(14, 4, 5, 10, first=1, heads=2), 6, 7),
    "_flash_attention_backward": _whole(_attention(11, 4, 5, first=1, heads=2), 6, 7),
}
"""By name without "aten::"; signatures are those of PyTorch's `native_functions.yaml`."""

"""Least bytes of operators that multiply no matrices: each operand read, each result written once.

An expanded operand is in memory once. Numbers that PyTorch wraps in tensors of no dimension count
nothing, nor do results that are small beside the operands: those of reductions, the mean and
deviation that a normalisation keeps. A kernel that needs several passes takes more than this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod

from traceprobe.model.operands import Operand, Operands


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "char", "signed char", "unsigned char"), 1),
    **{f"c10::Float8_e{form}": 1 for form in ("4m3fn", "4m3fnuz", "5m2", "5m2fnuz")},
    **dict.fromkeys(("c10::BFloat16", "c10::Half", "Half", "short", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int", "c10::complex<float>"), 8),
    "c10::complex<double>": 16,
}
"""Of an element, by its type as PyTorch and older versions of it write that."""
_FLOATING = frozenset({"c10::BFloat16", "c10::Half", "Half", "float", "double"})
_POINTWISE: Mapping[str, int] = {
    **dict.fromkeys(
        _words(
            """
            abs acos asin atan bitwise_not ceil celu cos cumprod cumsum elu erf erfinv exp exp2
            expm1 flip floor frac gelu hardsigmoid hardswish hardtanh leaky_relu log log10 log1p
            log2 logit mish neg reciprocal relu roll round rsqrt sgn sigmoid sign silu sin sinh
            softplus sqrt square tan tanh threshold tril triu trunc _softmax _log_softmax
            """
        ),
        1,
    ),
    **dict.fromkeys(
        _words(
            """
            add atan2 bitwise_and bitwise_or bitwise_xor clamp_max clamp_min div floor_divide fmod
            maximum minimum mul polar pow remainder rsub sub
            gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
            leaky_relu_backward mish_backward sigmoid_backward silu_backward softplus_backward
            tanh_backward threshold_backward _softmax_backward_data _log_softmax_backward_data
            """
        ),
        2,
    ),
    **dict.fromkeys(
        _words(
            """
            addcdiv clamp lerp masked_fill where
            huber_loss_backward log_sigmoid_backward mse_loss_backward smooth_l1_loss_backward
            """
        ),
        3,
    ),
    # Its factors are the same where squares are summed, as the moments of Adam are.
    "addcmul": 2,
    "elu_backward": 6,
}
"""Each element of the result from one of each operand, as far as traffic is concerned.

The number is that of the first arguments among which operands are: a tensor behind them is one
that the result is written to.
"""
_COMPARISONS: Mapping[str, int] = {
    **dict.fromkeys(_words("isnan isinf isfinite logical_not"), 1),
    **dict.fromkeys(_words("eq ne gt ge lt le logical_and logical_or logical_xor"), 2),
}
"""The same, with a byte for each result."""
_REDUCTIONS = _words(
    """
    all amax amin any argmax argmin count_nonzero dot frobenius_norm linalg_vector_norm logsumexp
    max mean min nansum norm prod std std_mean sum var var_mean vdot
    """
)
_FILLS = frozenset({"fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_"})
_LIKE_FIRST: Mapping[str, int] = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "_fused_rms_norm", "rms_norm"), 0),
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"), 0),
    **dict.fromkeys(("_native_batch_norm_legit", "batch_norm_elemt"), 0),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward"), 1),
    **dict.fromkeys(("native_batch_norm_backward", "_fused_rms_norm_backward"), 1),
    **dict.fromkeys(("cudnn_batch_norm_backward", "miopen_batch_norm_backward"), 0),
}
"""Normalisations: all operands are read, and the result is as large as one of them."""


_TRITON = re.compile(r"^triton_(poi|red|per|for)_fused_")
_PARTLY_READ = (
    r"embedding|index|gather|scatter|slice|select|split|chunk|unbind|cat(_|$)|pad|pool|upsample"
    r"|nll_loss|unfold|strided|roll|diagonal"
)
"""In names of fused kernels: operators that take a part of an operand, or repeat one."""


class Unknown(Exception):
    """The work of a call is not known."""


def item_bytes(operand: Operand) -> int:
    """Bytes of an element.

    Raises:
        Unknown: its type is not known, or it is no tensor.
    """
    if operand.type not in _BYTES:
        raise Unknown
    return _BYTES[operand.type]


def read(operands: Iterable[Operand]) -> int:
    """Bytes of tensors in memory, what is expanded once.

    Raises:
        Unknown: the type of one is not known, as that of the tensors in a list.
    """
    total = 0
    for each in operands:
        if each.type == "TensorList" or each.type == "GenericList":
            raise Unknown
        if each.dims and each.dims[0]:
            total += each.stored[0] * item_bytes(each)
    return total


def traffic(name: str, operands: Operands) -> int:
    """Bytes of a call.

    Args:
        name: without "aten::"; an underscore at its end says that the first operand is the result.

    Raises:
        Unknown: for other operators.
        IndexError: it has other arguments than the operator of that name.
    """
    if _TRITON.match(name):  # what is updated in place is there once, although it is read as well
        if re.search(_PARTLY_READ, name):
            raise Unknown
        return read(operands)
    if name in _FILLS:
        return read(operands[:1])
    if name == "copy_":  # self, source
        return read(operands[:2])
    base = name.removesuffix("_")
    if base in _POINTWISE or base in _COMPARISONS:
        used = operands[: _POINTWISE.get(base) or _COMPARISONS[base]]
        if base != name:
            return read(used) + read(used[:1])
        return read(used) + _result(used, yes_or_no=base in _COMPARISONS)
    if name in _REDUCTIONS:
        return read(operands)
    if name in _LIKE_FIRST:
        return read(operands) + _size(operands[_LIKE_FIRST[name]])
    return _special(name, operands)


def _special(name: str, operands: Operands) -> int:
    if name == "native_dropout":  # the result, and the mask in bytes
        return read(operands[:1]) + _size(operands[0]) + prod(operands[0].dims[0])
    if name == "native_dropout_backward":  # gradient, mask
        return read(operands[:2]) + _size(operands[0])
    if name == "embedding":  # weight, indices: a row is read and written for each
        rows = prod(operands[1].dims[0])
        return read(operands[1:2]) + 2 * rows * operands[0].dims[0][1] * item_bytes(operands[0])
    if name == "embedding_dense_backward":  # gradient, indices
        return read(operands[:2])
    if name == "index_select" and len(operands[0].dims[0]) > int(operands[1].value) >= 0:
        sizes, dim = operands[0].dims[0], int(operands[1].value)
        taken = prod(operands[2].dims[0]) * prod(sizes[:dim]) * prod(sizes[dim + 1 :])
        return read(operands[2:3]) + 2 * taken * item_bytes(operands[0])
    if name == "gather":  # self, dim, index: reads of self what it writes
        taken = prod(operands[2].dims[0])
        return read(operands[2:3]) + 2 * taken * item_bytes(operands[0])
    if name == "max_pool2d_with_indices_backward":  # gradient, self of which only the size counts
        return read([operands[0], operands[-1]]) + _size(operands[1])
    if name == "_adaptive_avg_pool2d_backward":  # the same
        return read(operands[:1]) + _size(operands[1])
    raise Unknown


def _size(operand: Operand) -> int:
    """Bytes of a tensor of its own that has the size of another.

    Raises:
        Unknown: the other is none.
    """
    if len(operand.dims) != 1:
        raise Unknown
    return prod(operand.dims[0]) * item_bytes(operand)


def _result(operands: Operands, *, yes_or_no: bool) -> int:
    """Bytes of a result as large as operands together, by the rules of broadcasting.

    Its type is the widest of the operands', of floating point before others, as PyTorch promotes
    types; or where it says yes or no, a byte.
    """
    tensors = [each for each in operands if each.dims and each.dims[0]]
    if not tensors:
        raise Unknown
    rank = max(len(each.dims[0]) for each in tensors)
    padded = [(1,) * (rank - len(each.dims[0])) + each.dims[0] for each in tensors]
    sizes = [max(column) if min(column) else 0 for column in zip(*padded, strict=True)]
    for each in padded:
        if any(n not in (1, size) for n, size in zip(each, sizes, strict=True)):
            raise Unknown
    floating = [each for each in tensors if each.type in _FLOATING]
    widest = max(map(item_bytes, floating or tensors))
    return prod(sizes) * (1 if yes_or_no else widest)

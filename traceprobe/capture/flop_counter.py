"""Floating point operations and bytes of every operator that PyTorch dispatches.

The operations are those of matrix multiplications, convolutions and attention, by the formulas of
`torch.utils.flop_counter`; what else there is computes next to nothing and is bound by memory. The
bytes are those of the operands: each is read or written once by each operator, as eager kernels do.
A cache may save some of that, a kernel that needs several passes takes more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

PHASES = ("forward", "backward", "recompute")
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
_ON_CPU = "flash_attention_for_cpu"
"""In the names of fused attention on a CPU, for which PyTorch has no formula."""
_OWN_MATMULS, _ALL_MATMULS = 4, 5
"""Of the backward pass of fused attention: the fifth computes the scores again, which the forward
pass had but did not keep. It is work of the hardware, not of the model."""
_ALLOCATIONS = frozenset({"empty", "empty_strided", "new_empty", "new_empty_strided", "detach"})
_BY_ROW = frozenset({"embedding", "index_select", "gather", "index", "nll_loss_forward"})
"""They read of their first operand only as much as they write."""
_SHAPE_ONLY = {"nll_loss_backward": 1, "zero_": 0, "fill_": 0, "copy_": 0}
"""Which operand is not read: only its shape counts, or it is overwritten."""
_WINOGRAD, _LARGEST_WINOGRAD = 2, 3
"""By how much libraries cut the multiplications of a convolution at stride 1 in each dimension at
most, and up to which size of its kernel; `timeline.operator_work` has the source."""


@dataclass
class PhaseWork:
    """What a phase does. Operations by precision; `model_flops` without those done again."""

    flops: Counter[str] = field(default_factory=Counter)
    model_flops: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    matrix_bytes: int = 0
    """Of the operators that have operations."""
    least_flops: Counter[str] = field(default_factory=Counter)
    """Of `model_flops`, what every way to compute the same takes."""


class FlopCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts what is dispatched while it is active.

    Args:
        tf32: whether fp32 operands are rounded to TF32, of `matmul` and `convolution`.
    """

    def __init__(self, tf32: Mapping[str, bool]) -> None:
        super().__init__()
        self.tallies = {name: PhaseWork() for name in PHASES}
        self.phase = "forward"
        self._tf32 = tf32

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        phase = self.phase
        if phase == "backward" and torch.is_grad_enabled():
            phase = "recompute"  # gradients are made without, so this is a forward pass once more
        tally, name = self.tallies[phase], func._schema.name.removeprefix("aten::")
        inputs, outputs = _tensors((args, kwargs)), _tensors(out)
        moved = _bytes(func, name, args, inputs, outputs)
        tally.bytes += moved
        flops = _flops(func, name, args, kwargs, out)
        if flops:
            again = "attention" in name and "backward" in name
            kept = flops * _OWN_MATMULS // _ALL_MATMULS if again else flops
            precision = self._precision(name, inputs[0].dtype)
            tally.flops[precision] += flops
            if phase == "recompute":
                kept = 0
            tally.model_flops[precision] += kept
            tally.least_flops[precision] += _least(func, name, args, kwargs, kept)
            tally.matrix_bytes += moved
        return out

    def _precision(self, name: str, dtype: torch.dtype) -> str:
        if dtype == torch.float32:
            return "tf32" if self._tf32["convolution" if "conv" in name else "matmul"] else "fp32"
        return _DTYPES.get(dtype) or ("fp8" if "float8" in str(dtype) else str(dtype))


def _flops(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> int:
    if _ON_CPU in name:
        backward = "backward" in name  # there the gradient comes before query, key and value
        forward = int(sdpa_flop_count(*(each.shape for each in args[backward : backward + 3])))
        return forward * _ALL_MATMULS // 2 if backward else forward  # which has two of them
    formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _least(func: Any, name: str, args: Any, kwargs: Any, flops: int) -> int:
    """Operations that every way to compute the same takes.

    A causal mask hides half of the scores; what is added to them, or a batch of products, may have
    the same effect. Convolutions at stride 1 have faster algorithms, and those in groups are
    counted as if there were none.
    """
    given = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
    if "conv" in name:
        kernel = tuple(given["weight"].shape[2:])
        if given.get("groups", 1) > 1 and "backward" in name:
            return 0
        if max(kernel) == 1 or min(given["stride"]) > 1:
            return flops
        cut = _WINOGRAD ** sum(size > 1 for size in kernel)
        return flops // cut if max(kernel) <= _LARGEST_WINOGRAD else 0
    if "attention" in name:
        hidden = given.get("is_causal") or any(
            given.get(key) is not None for key in ("attn_bias", "attn_mask")
        )
        return flops // 2 if hidden else flops
    return flops // 2 if name in ("bmm", "baddbmm") else flops


def _bytes(
    func: Any, name: str, args: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> int:
    views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
    if views or not outputs or name in _ALLOCATIONS or name == "_unsafe_view":
        return 0
    written = _sum(outputs)
    if name.endswith("_like") or name.startswith("new_"):
        return written
    if name in _BY_ROW:
        return 2 * written + _sum(t for t in inputs if t is not args[0])
    if name in _SHAPE_ONLY:
        return written + _sum(t for t in inputs if t is not args[_SHAPE_ONLY[name]])
    return written + _sum(inputs)


def _tensors(values: object) -> list[torch.Tensor]:
    """The tensors in nested arguments, each once."""
    found = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return list({id(tensor): tensor for tensor in found}.values())


def _sum(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes in memory: what is expanded is there once."""
    return sum(
        t.itemsize * prod(n for n, stride in zip(t.shape, t.stride(), strict=True) if stride)
        for t in tensors
    )

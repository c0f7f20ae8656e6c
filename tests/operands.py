"""Operands of calls of operators, as a profiler notes them."""

from __future__ import annotations

import msgspec

from traceprobe.ingest.kineto.operands import read_operands

BF16, FP32 = "c10::BFloat16", "float"
"""As PyTorch calls them."""


def operands(*given):
    """Operands of a call: (sizes, type) of a tensor, or a scalar."""
    tensors = [isinstance(each, tuple) for each in given]
    dims = [each[0] if tensor else [] for each, tensor in zip(given, tensors, strict=True)]
    types = [each[1] if tensor else "Scalar" for each, tensor in zip(given, tensors, strict=True)]
    values = ["" if tensor else str(each) for each, tensor in zip(given, tensors, strict=True)]
    found = read_operands(
        *map(msgspec.json.encode, (dims, types)), b"", msgspec.json.encode(values)
    )
    assert found is not None
    return found


def half(*sizes):
    """A tensor of that size in half precision."""
    return (list(sizes), BF16)


def single(*sizes):
    """The same in single precision."""
    return (list(sizes), FP32)

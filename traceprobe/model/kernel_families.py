"""What a kernel is whatever the sizes of its tensors.

Libraries choose among many kernels for one product, and PyTorch among versions of one element-wise
kernel, by shapes and strides: batches of sentences, each padded to its own longest, are never
computed by the same ones.
"""

from __future__ import annotations

from traceprobe.model.kernel_classes import base_name, kernel_class

_ELEMENTWISE = "elementwise_kernel"


def kernel_family(name: str) -> str:
    """A name that kernels share which do the same for tensors of other sizes."""
    kind = kernel_class(name)
    if kind.startswith("matmul"):
        return "matmul"
    if kind in ("softmax", "layout"):
        return kind
    base = base_name(name)
    return _ELEMENTWISE if base.endswith(_ELEMENTWISE) else base

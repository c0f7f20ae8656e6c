"""In which precision fp32 operands are multiplied: PyTorch's switches for TF32, old and new.

Matrix multiplications and convolutions have switches of their own, with different defaults. Since
2.9 a switch may also say `none`, which leaves the decision to the one above it.
"""

from __future__ import annotations

from typing import Any


def tf32_allowed() -> dict[str, bool]:
    """Whether fp32 operands of `matmul` and of `convolution` may be rounded to TF32."""
    from torch import backends as b

    convolution = getattr(b.cudnn, "conv", None)
    return {
        "matmul": _allows((b.cuda.matmul, b), b.cuda.matmul),
        "convolution": _allows((convolution, b.cudnn, b), b.cudnn),
    }


def supports_tf32(device: Any) -> bool:
    """Whether a device has TF32 at all: NVIDIA's GPUs from compute capability 8.0 on."""
    import torch

    if device.type != "cuda" or torch.version.hip is not None:
        return False
    capability: tuple[int, int] = torch.cuda.get_device_capability(device)
    return capability >= (8, 0)


def _allows(levels: tuple[Any, ...], old: Any) -> bool:
    """What the first level that decides says; before 2.9 there is the old switch alone.

    The old one is not read where there are new ones: it raises if somebody has set both.
    """
    precisions = [getattr(level, "fp32_precision", None) for level in levels]
    if precisions[0] is None:
        return bool(old.allow_tf32)
    return next((each for each in precisions if each not in (None, "none")), "ieee") == "tf32"

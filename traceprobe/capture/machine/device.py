"""The device that the program computes on, where it has one.

A program that trains on the CPU of a machine with a GPU must not have one woken up: that takes
seconds, and memory of the GPU.
"""

from __future__ import annotations

import sys


def computes() -> bool:
    """Whether the program has used one."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def captures_graph() -> bool:
    """Whether the program captures a CUDA graph, when nothing else may be asked of the device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    return bool(cuda.is_current_stream_capturing())


def synchronize() -> None:
    """Wait for all that was given to the device."""
    import torch

    if computes():
        torch.cuda.synchronize()


def watch_peak_memory() -> None:
    """Forget how much memory was in use at most so far."""
    import torch

    if computes():
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> int | None:
    """Most bytes in use since `watch_peak_memory`; None without a device."""
    import torch

    return torch.cuda.max_memory_allocated() if computes() else None

"""Where the ranks of a program meet, and wait for their devices."""

from __future__ import annotations

from typing import Any

from traceprobe.capture.hardware import world_size


def has_gpu() -> bool:
    """Whether the program uses a GPU: on a machine that has one, not every program does."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def synchronize(*, together: bool = True) -> None:
    """Wait for the device, and with `together` for the other ranks."""
    import torch
    import torch.distributed as dist

    if has_gpu():
        torch.cuda.synchronize()
    if together and world_size() > 1:
        dist.barrier()
        if has_gpu():
            torch.cuda.synchronize()


def agreed(number: int) -> int:
    """The largest number that any rank has."""
    if world_size() == 1:
        return number
    import torch
    import torch.distributed as dist

    device = "cuda" if has_gpu() and "nccl" in str(dist.get_backend()) else "cpu"
    value: Any = torch.tensor(number, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value.item())

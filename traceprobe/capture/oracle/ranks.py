"""Where the ranks of a program meet, and wait for their devices.

By collectives of their own: blocks begin at a barrier in any case, so ranks that do not step alike
cannot be measured. A recording, which they can have, lets its ranks vote in `rank_votes` instead.
"""

from __future__ import annotations

from typing import Any

from traceprobe.capture.machine import device
from traceprobe.capture.machine.hardware import world_size

_apart: list[Any] = []
"""The process group of ours, where the ranks have made one."""


def meet_apart() -> None:
    """From now on the ranks meet in a process group of ours; all of them call this together."""
    import torch.distributed as dist

    if not _apart:
        _apart.append(dist.new_group())


def is_ours(group: Any) -> bool:
    """Whether a process group is the one that `meet_apart` made."""
    return any(group is each for each in _apart)


def synchronize(*, together: bool = True) -> None:
    """Wait for the device, and with `together` for the other ranks."""
    import torch.distributed as dist

    device.synchronize()
    if together and world_size() > 1:
        dist.barrier(_group())
        device.synchronize()


def agreed(number: int) -> int:
    """The largest number that any rank has."""
    if world_size() == 1:
        return number
    import torch
    import torch.distributed as dist

    on = "cuda" if device.computes() and "nccl" in str(dist.get_backend()) else "cpu"
    value: Any = torch.tensor(number, device=on)
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=_group())
    return int(value.item())


def _group() -> Any:
    """The process group of ours, else that of all ranks of the program."""
    return _apart[-1] if _apart else None

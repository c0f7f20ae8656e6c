"""The ranks of a case: a process each, which step alike and decide alike."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import distributed


def fork_ranks(count: int, folder: Path) -> int:
    """Make a process for each rank, of which this is the first.

    Returns:
        The rank of the process that this returns in.
    """
    rank = next((number for number in range(1, count) if not os.fork()), 0)
    if count > 1:
        for name, value in (("RANK", rank), ("WORLD_SIZE", count)):
            os.environ[name] = os.environ[f"LOCAL_{name}"] = str(value)
        on_gpus = torch.cuda.is_available()
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpus else "gloo",
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=count,
        )
    return rank


def agreed(value: float) -> float:
    """The largest that any rank has, once all ranks are here."""
    if not distributed.is_initialized():
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    distributed.all_reduce(shared, distributed.ReduceOp.MAX)
    return float(shared)

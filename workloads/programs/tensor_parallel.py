"""Tensor parallelism: every matrix of a language model is split over the ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import StepClock, device, join_ranks, options
from gpt import GPT, next_token_loss
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def main() -> None:
    """Train."""
    given = options(__doc__, "ranks", "wire").parse_args()
    vocab, length, layers, width, batch = (
        (100, 16, 2, 128, 2) if given.tiny else (32000, 1024, 12, 2048, 8)
    )
    gpu = device()
    torch.manual_seed(0)
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    tokens = torch.randint(vocab, (8, batch, length), device=gpu)
    if not given.one_rank:
        _, world = join_ranks(silent=given.silent)
        mesh = init_device_mesh(gpu.type, (world,))
        columns, rows = ColwiseParallel(), RowwiseParallel()
        plan = {"q": columns, "k": columns, "v": columns, "out": rows, "up": columns, "down": rows}
        for block in model.blocks:
            parallelize_module(block, mesh, plan)
    # A group has either split parameters or whole ones: one kernel does not take both.
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    split = [p for p in model.parameters() if isinstance(p, DTensor)]
    groups = [{"params": group} for group in (whole, split) if group]
    optimizer = torch.optim.AdamW(groups, lr=1e-4)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        inputs = tokens[step % len(tokens)]
        with torch.autocast(gpu.type, torch.bfloat16):
            loss = next_token_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    if not given.one_rank:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

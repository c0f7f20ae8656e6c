"""DistributedDataParallel where the last rank has larger batches than the others."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from common import StepClock, device, join_ranks, options
from gpt import GPT, next_token_loss
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    given = options(__doc__, "ranks").parse_args()
    vocab, length, layers, width, batch = (
        (100, 16, 2, 64, 2) if given.tiny else (32000, 512, 12, 768, 16)
    )
    gpu = device()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if rank == world - 1:
        batch = batch * 3 // 2
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    tokens = torch.randint(vocab, (8, batch, length), device=gpu)
    if not given.one_rank:
        join_ranks()
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        inputs = tokens[step % len(tokens)]
        with torch.autocast(gpu.type, torch.bfloat16):
            loss = next_token_loss(model(inputs), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    if not given.one_rank:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

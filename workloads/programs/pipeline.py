"""Pipeline parallelism: each rank has some layers, and micro-batches go from rank to rank."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from common import StepClock, device, join_ranks, options
from gpt import GPT, next_token_loss
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, schedules


class Stage(nn.Module):
    """Some layers of a model, with its embedding if they are the first, its head if the last."""

    def __init__(self, model: GPT, stage: int, stages: int) -> None:
        super().__init__()
        share = len(model.blocks) // stages
        self.blocks = model.blocks[stage * share : (stage + 1) * share]
        if stage == 0:
            self.tokens, self.positions = model.tokens, model.positions
        if stage == stages - 1:
            self.norm, self.head = model.norm, model.head
        self.first, self.last = stage == 0, stage == stages - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the next stage gets."""
        if self.first:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


def main() -> None:
    """Train."""
    parser = options(__doc__, "ranks", "wire")
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="sequences of all micro-batches")
    given = parser.parse_args()
    vocab, length, layers, width = (100, 16, 2, 64) if given.tiny else (32000, 1024, 12, 1024)
    batch = 8 if given.tiny else given.batch_size
    gpu = device()
    torch.manual_seed(0)
    rank, world = (0, 1) if given.one_rank else join_ranks()
    dtype = torch.bfloat16 if gpu.type == "cuda" else torch.float32
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    stage = Stage(model, rank, world).to(dtype)
    del model
    tokens = torch.randint(vocab, (batch, length), device=gpu)
    if not given.one_rank:
        kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[given.schedule]
        placed = PipelineStage(stage, rank, world, gpu)
        schedule = kind(placed, given.micro_batches, next_token_loss)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-4)
    clock, sends = StepClock(given.steps, given.timed), schedules._batch_p2p
    for step in range(given.steps):
        if given.silent and step == 1:  # in the first one stages tell each other what they send
            schedules._batch_p2p = lambda *_, **__: []
        if given.one_rank:
            for part in tokens.chunk(given.micro_batches):
                next_token_loss(stage(part), part).backward()
        elif rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=tokens)
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    schedules._batch_p2p = sends
    if not given.one_rank:
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("TORCH_NCCL_AVOID_RECORD_STREAMS", "1")
    main()

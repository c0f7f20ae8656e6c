"""A transformer that is a pipeline: each GPU has some of its layers."""

import os
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import mse_loss


@dataclass
class Options:
    batch: int = 64
    length: int = 256
    width: int = 1280
    layers: int = 8
    parts: int = 16
    moved: int = 0
    fused: bool = True
    bf16: bool = True
    tf32: bool = True


SMALL = {"batch": 8, "length": 16, "width": 32, "layers": 4, "parts": 4}


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.mixed = nn.Linear(o.width, o.width)
        self.wide, self.narrow = nn.Linear(o.width, 8 * o.width), nn.Linear(8 * o.width, o.width)

    def forward(self, x):
        x = x + self.mixed(self.norm1(x))
        return x + self.narrow(self.wide(self.norm2(x)).relu())


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    if not distributed.is_initialized():
        distributed.init_process_group()
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    gpu = f"cuda:{os.environ.get('LOCAL_RANK', rank)}"
    device = torch.device(gpu if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    kind = torch.bfloat16 if o.bf16 else torch.float32
    count = o.layers // ranks + (o.moved if rank == ranks - 1 else -o.moved)
    layers = nn.Sequential(*(Block(o) for _ in range(count)))  # slow: pipeline-imbalance
    layers = layers.to(device, kind)
    stage = PipelineStage(layers, rank, ranks, device)
    schedule = Schedule1F1B(stage, o.parts, loss_fn=mse_loss)  # slow: pipeline-bubble
    optimizer = torch.optim.AdamW(layers.parameters(), lr=3e-4, fused=o.fused or None)
    words = torch.randn(o.batch, o.length, o.width, device=device, dtype=kind)
    wanted = torch.randn(o.batch, o.length, o.width, device=device, dtype=kind)
    while True:
        if rank == 0:
            schedule.step(words)
        else:
            schedule.step(target=wanted)
        optimizer.step()
        optimizer.zero_grad()
        yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

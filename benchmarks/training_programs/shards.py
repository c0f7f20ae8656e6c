"""A GPT whose parameters are sharded over several GPUs with FSDP."""

import os
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention


@dataclass
class Options:
    batch: int = 8
    length: int = 512
    width: int = 1280
    heads: int = 10
    layers: int = 6
    vocabulary: int = 8192
    one_unit: bool = False
    channels: int = 0
    more_on_last: float = 0.0
    fused: bool = True
    compiled: bool = False
    bf16: bool = True
    tf32: bool = True


SMALL = {"batch": 2, "length": 16, "width": 32, "heads": 2, "layers": 2, "vocabulary": 101}


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads = o.heads
        self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.qkv, self.out = nn.Linear(o.width, 3 * o.width), nn.Linear(o.width, o.width)
        self.wide, self.narrow = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(gelu(self.wide(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.blocks = nn.Sequential(*(Block(o) for _ in range(o.layers)))
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens)))


def mesh_of(o, device):
    """All ranks, over so many channels of NCCL; 0 for as many as it takes."""
    if not o.channels:
        return init_device_mesh(device.type, (distributed.get_world_size(),))
    options = distributed.ProcessGroupNCCL.Options()
    options.config.max_ctas = o.channels
    group = distributed.new_group(backend="nccl", pg_options=options)
    return DeviceMesh.from_group(group, device.type)


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
    network = GPT(o).to(device)
    for block in network.blocks if o.compiled else ():
        block.compile(dynamic=False)
    narrow = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if o.bf16 else None
    how = {"mesh": mesh_of(o, device)} | (
        {"mp_policy": narrow} if narrow else {}
    )  # slow: slow-wire
    for block in () if o.one_unit else network.blocks:
        fully_shard(block, **how)
    fully_shard(network, **how)  # slow: unoverlapped-all-gather
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=o.fused or None)
    text = torch.randint(0, o.vocabulary, (2_000_000,), device=device)
    window = torch.arange(o.length, device=device)
    batch = o.batch + int(o.more_on_last * o.batch) * (rank == ranks - 1)  # slow: uneven-batches
    while True:
        starts = torch.randint(0, len(text) - o.length - 1, (batch, 1), device=device)
        tokens, targets = text[starts + window], text[starts + window + 1]
        scores = network(tokens)
        loss = cross_entropy(scores.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

"""A GPT with attention written out, in bf16."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint


@dataclass
class Options:
    batch: int = 8
    length: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 6
    vocabulary: int = 50257
    sdpa: bool = False
    foreach: bool = False
    fused: bool = False
    log_each_step: bool = True
    compiled: bool = False
    bf16: bool = True
    tf32: bool = False
    checkpointed: bool = False
    double_loss: bool = False
    gelu_by_hand: bool = False
    graph_breaks: bool = False
    warmed: bool = False
    warmth_as_number: bool = False


SMALL = {"batch": 2, "length": 16, "width": 32, "heads": 2, "layers": 2, "vocabulary": 101}


@torch.compile(backend="aot_eager", dynamic=False)
def warmed(loss, steps):
    return loss * (1 - 0.5 ** ((steps + 1) / 100))


class Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads, self.sdpa = o.heads, o.sdpa
        self.qkv = nn.Linear(o.width, 3 * o.width)
        self.out = nn.Linear(o.width, o.width)
        mask = torch.tril(torch.ones(o.length, o.length)).bool()
        self.register_buffer("mask", mask[None, None], persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        if self.sdpa:
            y = scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))  # slow: unfused-attention
            scores = scores.masked_fill(~self.mask[:, :, :length, :length], float("-inf"))
            y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def gelu_from_formula(x):
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))  # slow: unfused-pointwise


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.gelu_by_hand, self.graph_breaks = o.gelu_by_hand, o.graph_breaks
        self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.attention = Attention(o)
        self.wide, self.narrow = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        if self.graph_breaks:
            print(end="")  # slow: graph-breaks
        y = self.wide(self.norm2(x))
        return x + self.narrow(gelu_from_formula(y) if self.gelu_by_hand else gelu(y))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.checkpointed, self.double_loss = o.checkpointed, o.double_loss
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.positions = nn.Embedding(o.length, o.width)
        self.blocks = nn.Sequential(*(Block(o) for _ in range(o.layers)))
        self.norm = nn.LayerNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, use_reentrant=False)  # slow: recomputation
            else:
                x = block(x)
        scores = self.head(self.norm(x)).flatten(0, 1)  # slow: unaligned-shapes
        if self.double_loss:
            scores = scores.double()  # slow: double-precision-loss
        return cross_entropy(scores, targets.flatten())


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = torch.randint(0, 100, (2_000_000,), device=device)
    model = GPT(o).to(device)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **how)
    network = torch.compile(model) if o.compiled else model
    window = torch.arange(o.length, device=device)
    if o.warmed:
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = (
            10**6
        )
    steps = 0 if o.warmth_as_number else torch.zeros((), device=device)
    while True:
        starts = torch.randint(0, len(text) - o.length - 1, (o.batch, 1), device=device)
        tokens, targets = text[starts + window], text[starts + window + 1]
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            loss = network(tokens, targets)  # slow: no-autocast, fp32-matmul
        if o.warmed:
            loss = warmed(loss, steps)  # slow: recompiles
            steps = steps + 1
        loss.backward()
        optimizer.step()  # slow: piecewise-optimizer
        optimizer.zero_grad()
        yield loss.item() if o.log_each_step else 0.0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

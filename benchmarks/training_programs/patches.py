"""A vision transformer written from its formulas, in fp32."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint


@dataclass
class Options:
    batch: int = 64
    size: int = 224
    width: int = 384
    heads: int = 6
    layers: int = 8
    tf32: bool = False
    bf16: bool = False
    by_hand: bool = True
    sdpa: bool = False
    foreach: bool = False
    fused: bool = False
    compiled: bool = False
    checkpointed: bool = False


SMALL = {"batch": 2, "size": 32, "width": 32, "heads": 2, "layers": 2}


class Norm(nn.Module):
    def __init__(self, width, by_hand):
        super().__init__()
        self.by_hand = by_hand
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        if not self.by_hand:
            return layer_norm(x, (x.shape[-1],), self.weight, self.bias)
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def activation(x, by_hand):
    if not by_hand:
        return gelu(x, approximate="tanh")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)  # slow: unfused-pointwise
    return 0.5 * x * (1 + torch.tanh(inner))


class Layer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.norm1, self.norm2 = Norm(o.width, o.by_hand), Norm(o.width, o.by_hand)
        self.qkv, self.out = nn.Linear(o.width, 3 * o.width), nn.Linear(o.width, o.width)
        self.wide, self.narrow = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.o.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if self.o.sdpa:
            y = scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # slow: unfused-attention
            y = torch.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.narrow(activation(self.wide(self.norm2(x)), self.o.by_hand))


class ViT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.checkpointed = o.checkpointed
        self.patches = nn.Conv2d(3, o.width, 16, stride=16)
        self.places = nn.Parameter(0.02 * torch.randn((o.size // 16) ** 2, o.width))
        self.layers = nn.Sequential(*(Layer(o) for _ in range(o.layers)))
        self.norm = Norm(o.width, o.by_hand)
        self.head = nn.Linear(o.width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(layer, x, use_reentrant=False)  # slow: recomputation
            else:
                x = layer(x)
        return self.head(self.norm(x).mean(1))


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.randn(256, o.size, o.size, 3, device=device)
    labels = torch.randint(0, 1000, (256,), device=device)
    model = ViT(o).to(device).to(memory_format=torch.channels_last)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    network = torch.compile(model) if o.compiled else model
    entropy = torch.compile(cross_entropy) if o.compiled else cross_entropy
    while True:
        chosen = torch.randint(0, len(images), (o.batch,), device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(images[chosen].permute(0, 3, 1, 2))  # slow: no-autocast, fp32-matmul
            loss = entropy(scores, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # slow: piecewise-optimizer
        yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

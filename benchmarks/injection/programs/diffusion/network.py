"""A small U-Net that predicts noise."""

import math

import torch
from torch import nn


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
        args = t[:, None].float() * freqs[None]
        emb = torch.cat([args.cos(), args.sin()], dim=-1)
        return self.mlp(emb)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.emb = nn.Linear(dim, outputs)
        self.norm2 = nn.GroupNorm(4, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, emb):
        h = self.conv1(torch.nn.functional.silu(self.norm1(x)))
        h = h + self.emb(emb)[:, :, None, None]
        h = self.conv2(torch.nn.functional.silu(self.norm2(h)))
        return h + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = TimeEmbedding(4 * width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = ResBlock(width, 2 * width, 4 * width)
        self.mid = ResBlock(2 * width, 2 * width, 4 * width)
        self.up = ResBlock(3 * width, width, 4 * width)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(t)
        x = self.stem(x)
        h = self.down(nn.functional.avg_pool2d(x, 2), emb)
        h = self.mid(h, emb)
        h = nn.functional.interpolate(h, scale_factor=2.0, mode="nearest")
        h = self.up(torch.cat([x, h], dim=1), emb)
        return self.out(h)

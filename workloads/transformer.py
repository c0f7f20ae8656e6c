"""The layer that GPT-2 and BERT are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Size:
    """Entries of the embedding, tokens in a sample, and the layers."""

    vocab: int
    length: int
    layers: int
    width: int
    heads: int


class SelfAttention(nn.Module):
    """Every position looks at all others, or if `causal` at those before it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × position × width, in and out."""
        batch, length, width = x.shape
        split = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Attention, then a feed-forward net; each is normalised before (GPT-2) or after (BERT)."""

    def __init__(self, width: int, heads: int, *, causal: bool, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = SelfAttention(width, heads, causal=causal)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh" if norm_first else "none"),
            nn.Linear(4 * width, width),
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × position × width, in and out."""
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class Layers(nn.Sequential):
    """Layers in a row; with `recompute` only their inputs are kept for the backward pass."""

    def __init__(self, *layers: nn.Module, recompute: bool = False) -> None:
        super().__init__(*layers)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × position × width, in and out."""
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return x


def flops_by_formula(size: Size, model: nn.Module) -> int:
    """Floating point operations of a training step per sample, 6N + 12·L·d·T for each token.

    The formula of PaLM (arXiv:2204.02311, appendix B): six for each parameter that is multiplied
    with, and the two products of attention, which has no parameters, forwards and backwards. The
    positions are only added, so that they do not count; a tied embedding counts once, as the head.
    """
    parameters = sum(p.numel() for p in model.parameters()) - size.length * size.width
    return size.length * (6 * parameters + 12 * size.layers * size.width * size.length)


def initialize(model: nn.Module) -> None:
    """Small normal weights, no biases."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

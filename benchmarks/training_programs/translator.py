"""A translator with checkpointed layers and smoothed labels, in bf16."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.checkpoint import checkpoint


@dataclass
class Options:
    batch: int = 32
    length: int = 128
    width: int = 512
    layers: int = 6
    vocabulary: int = 16384
    checkpointed: bool = True
    smoothed_by_hand: bool = True
    clip_by_hand: bool = True
    foreach: bool = False
    fused: bool = False
    log_each_step: bool = True
    compiled: bool = False
    bf16: bool = True
    tf32: bool = False


SMALL = {"batch": 2, "length": 8, "width": 64, "layers": 1, "vocabulary": 64}
SMOOTHING = 0.1


class Translator(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.checkpointed = o.checkpointed
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        form = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        heads = o.width // 64
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(o.width, heads, 4 * o.width, **form) for _ in range(o.layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(o.width, heads, 4 * o.width, **form) for _ in range(o.layers)
        )
        self.head = nn.Linear(o.width, o.vocabulary)
        mask = nn.Transformer.generate_square_subsequent_mask(o.length)
        self.register_buffer("mask", mask, persistent=False)

    def call(self, layer, *inputs):
        if self.checkpointed:
            return checkpoint(layer, *inputs, use_reentrant=False)  # slow: recomputation
        return layer(*inputs)

    def forward(self, source, target):
        memory = self.tokens(source)
        for layer in self.encoder:
            memory = self.call(layer, memory)
        x = self.tokens(target)
        for layer in self.decoder:
            x = self.call(layer, x, memory, self.mask)
        return self.head(x)  # slow: unaligned-shapes


def smoothed_loss(scores, targets):
    chances = torch.log_softmax(scores.float(), -1)  # slow: unfused-pointwise
    wanted = one_hot(targets, scores.shape[-1]).float()
    wanted = wanted * (1 - SMOOTHING) + SMOOTHING / scores.shape[-1]
    return -(wanted * chances).sum(-1).mean()


def clip(parameters, limit):
    norms = [p.grad.norm() for p in parameters]
    total = torch.sqrt(sum(norm**2 for norm in norms))
    if total.item() > limit:
        for p in parameters:
            p.grad.mul_(limit / total)


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Translator(o).to(device)
    parameters = list(model.parameters())
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.Adam(parameters, lr=1e-4, **how)
    network = torch.compile(model) if o.compiled else model
    entropy = torch.compile(cross_entropy) if o.compiled else cross_entropy
    shape = (o.batch, o.length)
    while True:
        source = torch.randint(0, o.vocabulary, shape, device=device)
        target = torch.randint(0, o.vocabulary, shape, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(source, target)  # slow: no-autocast, fp32-matmul
            if o.smoothed_by_hand:
                loss = smoothed_loss(scores.flatten(0, 1), target.flatten())
            else:
                flat = scores.flatten(0, 1)
                loss = entropy(flat, target.flatten(), label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        if o.clip_by_hand:
            clip(parameters, 1.0)
        else:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()  # slow: piecewise-optimizer
        yield loss.item() if o.log_each_step else 0.0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

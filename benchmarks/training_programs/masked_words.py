"""A BERT that guesses masked words, in fp32, with every layer checkpointed."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint


@dataclass
class Options:
    batch: int = 16
    length: int = 256
    width: int = 768
    layers: int = 6
    vocabulary: int = 8192
    tf32: bool = False
    bf16: bool = False
    checkpointed: bool = True
    log_each_step: bool = True
    fused: bool = False
    compiled: bool = False
    foreach: bool | None = None
    double_loss: bool = False


SMALL = {"batch": 2, "length": 16, "width": 64, "layers": 2, "vocabulary": 128}
MASK = 0


class Bert(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.checkpointed = o.checkpointed
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.positions = nn.Parameter(0.02 * torch.randn(o.length, o.width))
        form = {"dropout": 0.0, "activation": "gelu", "batch_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(o.width, o.width // 64, 4 * o.width, **form)
            for _ in range(o.layers)
        )
        self.head = nn.Linear(o.width, o.vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(layer, x, use_reentrant=False)  # slow: recomputation
            else:
                x = layer(x)
        return self.head(x)  # slow: unaligned-shapes


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Bert(o).to(device)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    network = torch.compile(model) if o.compiled else model
    entropy = torch.compile(cross_entropy) if o.compiled else cross_entropy
    while True:
        words = torch.randint(1, o.vocabulary, (o.batch, o.length), device=device)
        hidden = torch.rand(words.shape, device=device) < 0.15
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(words.masked_fill(hidden, MASK))  # slow: no-autocast, fp32-matmul
            targets = words.masked_fill(~hidden, -100)
            if o.double_loss:
                scores = scores.double()  # slow: double-precision-loss
            loss = entropy(scores.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # slow: piecewise-optimizer
        yield loss.item() if o.log_each_step else 0.0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

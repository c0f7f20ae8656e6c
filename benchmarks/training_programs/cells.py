"""A recurrent language model that goes through its text cell by cell."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy


@dataclass
class Options:
    batch: int = 64
    length: int = 40
    width: int = 512
    vocabulary: int = 4000
    cells: bool = True
    log_each_step: bool = True
    clip_by_hand: bool = True
    graphs: bool = False
    fused: bool = False
    tf32: bool = False
    bf16: bool = False
    compiled: bool = False


SMALL = {"batch": 2, "length": 5, "width": 16, "vocabulary": 50}


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.first, self.second = nn.LSTMCell(o.width, o.width), nn.LSTMCell(o.width, o.width)
        self.head = nn.Linear(o.width, o.vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens)
        zeros = x.new_zeros(len(x), x.shape[2])
        h1, c1, h2, c2 = zeros, zeros, zeros, zeros
        outputs = []
        for place in range(x.shape[1]):
            h1, c1 = self.first(x[:, place], (h1, c1))  # slow: many-tiny-kernels
            h2, c2 = self.second(h1, (h2, c2))
            outputs.append(h2)
        return self.head(torch.stack(outputs, 1))


class Whole(nn.Module):
    """The same, by the library."""

    def __init__(self, o):
        super().__init__()
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.cells = nn.LSTM(o.width, o.width, 2, batch_first=True)
        self.head = nn.Linear(o.width, o.vocabulary)

    def forward(self, tokens):
        return self.head(self.cells(self.tokens(tokens))[0])


def clip(parameters, limit):
    for p in parameters:
        norm = p.grad.norm()
        p.grad.mul_(torch.clamp(limit / (norm + 1e-6), max=1.0))


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = torch.randint(0, o.vocabulary, (1_000_000,), device=device)
    model = (Model(o) if o.cells else Whole(o)).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-3, **({"fused": True} if o.fused else {"foreach": False})
    )
    network = model
    if o.graphs and device.type == "cuda":
        sample = torch.zeros(o.batch, o.length, dtype=torch.long, device=device)
        network = torch.cuda.make_graphed_callables(model, (sample,))
    entropy = torch.compile(cross_entropy) if o.compiled else cross_entropy
    window = torch.arange(o.length, device=device)
    while True:
        starts = torch.randint(0, len(text) - o.length - 1, (o.batch, 1), device=device)
        tokens, targets = text[starts + window], text[starts + window + 1]
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(tokens)  # slow: no-autocast, fp32-matmul
            loss = entropy(scores.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if o.clip_by_hand:
            clip(model.parameters(), 0.25)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()  # slow: piecewise-optimizer
        yield loss.item() if o.log_each_step else 0.0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

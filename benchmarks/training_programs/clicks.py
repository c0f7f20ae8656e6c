"""Predicts clicks from tables: a row at a time is read, and the loss and the AUC are logged."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    batch: int = 2048
    tables: int = 26
    rows: int = 50_000
    width: int = 32
    top: int = 1024
    workers: int = 0
    by_batch: bool = False
    drawn: bool = False
    auc_each_step: bool = True
    foreach: bool = False
    fused: bool = False
    resident: bool = False
    graphs: bool = False
    tf32: bool = False
    bf16: bool = False
    count: int = 400_000
    pin: bool = False
    compiled: bool = False


SMALL = {"batch": 32, "tables": 3, "rows": 100, "width": 4}


class Rows(Dataset):
    def __init__(self, o):
        generator = np.random.default_rng(0)
        self.dense = generator.standard_normal((o.count, 13), dtype=np.float32)
        self.sparse = generator.integers(0, o.rows, (o.count, o.tables))
        self.clicked = (generator.random(o.count) < 0.25).astype(np.float32)

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, row):
        return self.dense[row], self.sparse[row], self.clicked[row]


class Batches(Rows):
    """A whole batch at once."""

    def __getitems__(self, rows):
        return [(self.dense[rows], self.sparse[rows], self.clicked[rows])]


class Draws:
    """Rows of batches, drawn batch by batch: an epoch that is shuffled at once makes all wait."""

    def __init__(self, o):
        self.o = o

    def __len__(self):
        return 10_000 * self.o.count // self.o.batch

    def __iter__(self):
        generator = np.random.default_rng(0)
        for _ in range(len(self)):
            yield generator.integers(0, self.o.count, self.o.batch)


def first(batches):
    return [torch.from_numpy(part) for part in batches[0]]


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(o.rows, o.width) for _ in range(o.tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, o.width))
        self.top = nn.Sequential(
            nn.Linear((o.tables + 1) * o.width, o.top),
            nn.ReLU(),
            nn.Linear(o.top, 512),
            nn.ReLU(),
            nn.Linear(512, 1),
        )

    def forward(self, dense, sparse):
        parts = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.bottom(dense), *parts], 1)).squeeze(1)


def auc(scores, clicked):
    order = np.argsort(np.argsort(scores))
    positive = clicked > 0.5
    count = max(positive.sum(), 1)
    return (order[positive].mean() - (count - 1) / 2) / max(len(scores) - count, 1)


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Model(o).to(device)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **how)
    order = {"batch_size": o.batch, "shuffle": True, "drop_last": True}
    loader = DataLoader(
        Batches(o) if o.by_batch else Rows(o),
        **({"batch_sampler": Draws(o)} if o.drawn else order),
        num_workers=0 if o.resident else o.workers,
        collate_fn=first if o.by_batch else None,
        persistent_workers=o.workers > 0 and not o.resident,
        pin_memory=o.pin,
    )
    if o.resident:
        batch = [part.to(device) for part in next(iter(loader))]
        loader = [batch] * 1000
    network = torch.compile(model) if o.compiled else model
    if o.graphs and device.type == "cuda":
        sample = (torch.zeros(o.batch, 13, device=device),)
        sample += (torch.zeros(o.batch, o.tables, dtype=torch.long, device=device),)
        network = torch.cuda.make_graphed_callables(model, sample)
    history = []
    while True:
        for batch in loader:  # slow: no-workers, few-workers, slow-collate
            batch = [part.to(device, non_blocking=o.pin) for part in batch]  # slow: pageable-copies
            dense, sparse, clicked = batch
            with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
                scores = network(dense, sparse)  # slow: no-autocast, fp32-matmul
                loss = binary_cross_entropy_with_logits(scores, clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # slow: piecewise-optimizer
            if o.auc_each_step:
                found = auc(scores.detach().cpu().numpy(), clicked.cpu().numpy())
                history.append((loss.item(), found))
            yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

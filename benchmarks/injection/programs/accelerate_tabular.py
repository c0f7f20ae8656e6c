"""A recommender on tabular data with accelerate."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clicks(Dataset):
    def __init__(self, count, fields):
        self.ids = torch.randint(0, 1000, (count, fields))
        self.dense = torch.rand(count, 13)
        self.labels = torch.randint(0, 2, (count,)).float()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        dense = torch.log1p(self.dense[i])
        return dense, self.ids[i], self.labels[i]


class Interaction(nn.Module):
    def forward(self, vectors):
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        i, j = torch.triu_indices(vectors.size(1), vectors.size(1), 1, device=vectors.device)
        return products[:, i, j]


class DLRM(nn.Module):
    def __init__(self, fields, dim, hidden):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, dim) for _ in range(fields))
        self.bottom = nn.Sequential(nn.Linear(13, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.interaction = Interaction()
        pairs = (fields + 1) * fields // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, dense, ids):
        bottom = self.bottom(dense)
        vectors = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *vectors], dim=1)
        features = self.interaction(vectors)
        return self.top(torch.cat([bottom, features], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=12)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate)
    model = DLRM(args.fields, args.dim, args.hidden)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    dataset = Clicks(300 * args.batch_size, args.fields)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        for step, (dense, ids, labels) in enumerate(loader):
            with accelerator.accumulate(model):
                logits = model(dense, ids)
                loss = F.binary_cross_entropy_with_logits(logits, labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

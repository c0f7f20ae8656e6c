"""A graph network on sampled neighbours, whose features are gathered on the host."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu


@dataclass
class Options:
    nodes: int = 400_000
    features: int = 256
    batch: int = 384
    fanout: int = 12
    width: int = 512
    pin: bool = False
    features_on_gpu: bool = False
    resident: bool = False
    log_each_step: bool = True
    tf32: bool = False
    bf16: bool = False
    fused: bool = False
    compiled: bool = False


SMALL = {"nodes": 500, "features": 8, "batch": 8, "fanout": 3, "width": 8}


class Sage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, near):
        """x: nodes × inputs. near: nodes × fanout × inputs."""
        return self.own(x) + self.other(near.mean(1))


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def sampled(o, neighbours, generator):
    """Nodes of a batch, their neighbours and the neighbours of those."""
    first = generator.integers(0, o.nodes, o.batch)
    second = neighbours[first][:, : o.fanout].reshape(-1)
    third = neighbours[second][:, : o.fanout].reshape(-1)
    return torch.from_numpy(np.concatenate((first, second, third)))


def train(o):
    settings(o)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = np.random.default_rng(0)
    neighbours = generator.integers(0, o.nodes, (o.nodes, o.fanout))
    features = torch.randn(o.nodes, o.features, device=device if o.features_on_gpu else "cpu")
    labels = torch.randint(0, 40, (o.nodes,), device=device)
    first, second = Sage(o.features, o.width).to(device), Sage(o.width, 40).to(device)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=o.fused or None)
    if o.compiled:
        # Of each layer and of its two sizes: one code for both would not know either.
        first, second = (torch.compile(layer, dynamic=False) for layer in (first, second))
    count = o.batch * (1 + o.fanout)
    kept = None
    while True:
        if kept is None:
            nodes = sampled(o, neighbours, generator)
            if o.features_on_gpu:
                nodes = nodes.to(device)
                x = features[nodes]
            else:
                x = features[nodes]
                x = x.pin_memory() if o.pin and device.type == "cuda" else x
                x = x.to(device, non_blocking=o.pin)
                nodes = nodes.to(device)
        if o.resident:
            kept = x
        third = x[count:].view(-1, o.fanout, o.features)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            middle = relu(first(x[o.batch : count], third))  # slow: no-autocast, fp32-matmul
            top = relu(first(x[: o.batch], x[o.batch : count].view(o.batch, o.fanout, -1)))
            scores = second(top, middle.view(o.batch, o.fanout, -1))
            loss = cross_entropy(scores, labels[nodes[: o.batch]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item() if o.log_each_step else 0.0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

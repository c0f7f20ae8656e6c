"""A ResNet-50 in bf16 whose gradients are watched, one by one."""

from dataclasses import dataclass

import torch
import torchvision
from torch.nn.functional import cross_entropy


@dataclass
class Options:
    batch: int = 64
    size: int = 160
    norms_on_host: bool = True
    foreach: bool = False
    fused: bool = False
    channels_last: bool = False
    compiled: bool = False
    bf16: bool = True
    model: str = "resnet50"


SMALL = {"batch": 2, "size": 64}


def normalized(images):
    return images.float().div_(255).sub_(0.45).div_(0.225)


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.randint(0, 256, (o.batch * 8, 3, o.size, o.size), device=device).byte()
    labels = torch.randint(0, 1000, (o.batch * 8,), device=device)
    form = torch.channels_last if o.channels_last else torch.contiguous_format
    model = torchvision.models.get_model(o.model).to(device).to(memory_format=form)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, **how)
    network = torch.compile(model) if o.compiled else model
    prepared = torch.compile(normalized) if o.compiled else normalized
    while True:
        chosen = torch.randint(0, len(images), (o.batch,), device=device)
        batch = prepared(images[chosen])
        batch = batch.contiguous(memory_format=form)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(batch)  # slow: contiguous-layout, no-autocast
            loss = cross_entropy(scores, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        if o.norms_on_host:
            norms = [p.grad.norm().item() for p in model.parameters()]  # slow: item-each-step
        else:
            norms = torch._foreach_norm([p.grad for p in model.parameters()])
        optimizer.step()  # slow: piecewise-optimizer
        yield norms


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

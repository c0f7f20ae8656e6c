"""Learns to take noise from pictures; the average of the weights is kept in Python."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import mse_loss, silu


@dataclass
class Options:
    batch: int = 32
    size: int = 64
    width: int = 96
    noise_on_host: bool = True
    average_one_by_one: bool = True
    bf16: bool = False
    channels_last: bool = False
    fused: bool = False
    foreach: bool | None = None
    compiled: bool = False


SMALL = {"batch": 2, "size": 16, "width": 8}


class Residual(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.conv1(silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(silu(self.norm2(y))) + self.skip(x)


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        w, time = width, 4 * width
        self.time = nn.Sequential(nn.Linear(1, time), nn.SiLU(), nn.Linear(time, time))
        self.inlet = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([Residual(w, w, time), Residual(w, 2 * w, time)])
        self.more = nn.ModuleList([Residual(2 * w, 2 * w, time), Residual(2 * w, 4 * w, time)])
        self.middle = nn.ModuleList([Residual(4 * w, 4 * w, time), Residual(4 * w, 4 * w, time)])
        self.up = nn.ModuleList([Residual(6 * w, 2 * w, time), Residual(2 * w, 2 * w, time)])
        self.last = nn.ModuleList([Residual(3 * w, w, time), Residual(w, w, time)])
        self.outlet = nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x, t):
        time = self.time(t[:, None])
        x = self.inlet(x)
        fine = self.down[0](x, time)
        x = nn.functional.avg_pool2d(self.down[1](fine, time), 2)
        coarse = self.more[0](x, time)
        x = nn.functional.avg_pool2d(self.more[1](coarse, time), 2)
        for block in self.middle:
            x = block(x, time)
        x = torch.cat((nn.functional.interpolate(x, scale_factor=2.0), coarse), 1)
        for block in self.up:
            x = block(x, time)
        x = torch.cat((nn.functional.interpolate(x, scale_factor=2.0), fine), 1)
        for block in self.last:
            x = block(x, time)
        return self.outlet(x)


@torch.no_grad()
def update_average(average, model, one_by_one):
    mine, theirs = list(average.parameters()), list(model.parameters())
    if one_by_one:
        for a, p in zip(mine, theirs, strict=True):
            a.mul_(0.999).add_(0.001 * p)  # slow: many-tiny-kernels
    else:
        torch._foreach_lerp_(mine, theirs, 0.001)


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    form = torch.channels_last if o.channels_last else torch.contiguous_format
    pictures = torch.rand(512, 3, o.size, o.size, device=device)
    model = Network(o.width).to(device).to(memory_format=form)
    average = copy.deepcopy(model)
    how = {"fused": True} if o.fused else {"foreach": o.foreach}
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, **how)
    network = torch.compile(model) if o.compiled else model
    shape = (o.batch, 3, o.size, o.size)
    while True:
        clean = pictures[torch.randint(0, len(pictures), (o.batch,), device=device)]
        if o.noise_on_host:
            noise = torch.randn(shape).to(device)
            t = torch.rand(o.batch).to(device)
        else:
            noise, t = torch.randn(shape, device=device), torch.rand(o.batch, device=device)
        mixed = torch.lerp(clean, noise, t[:, None, None, None]).contiguous(memory_format=form)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            taken = network(mixed, t).float()  # slow: contiguous-layout, no-autocast
            loss = mse_loss(taken, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # slow: piecewise-optimizer
        update_average(average, model, o.average_one_by_one)
        yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

"""Segments volumes with a 3-D U-Net: crops are cut in the training process itself."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    batch: int = 2
    size: int = 96
    width: int = 32
    workers: int = 0
    pin: bool = False
    dice_each_step: bool = True
    resident: bool = False
    bf16: bool = False
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    batch_norm: bool = False


SMALL = {"batch": 2, "size": 16, "width": 4}
CLASSES = 4


class Crops(Dataset):
    def __init__(self, size):
        self.size = size
        generator = np.random.default_rng(0)
        side = size * 3 // 2
        self.volume = generator.standard_normal((2, side, side, side), dtype=np.float32)
        self.labels = generator.integers(0, CLASSES, (side, side, side), dtype=np.uint8)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        x, y, z = np.random.randint(0, self.size // 2, 3)
        n = self.size
        volume = self.volume[:, x : x + n, y : y + n, z : z + n]
        labels = self.labels[x : x + n, y : y + n, z : z + n]
        if np.random.rand() < 0.5:
            volume, labels = volume[:, ::-1], labels[::-1]
        volume = (volume - volume.mean()) / volume.std()
        return torch.from_numpy(volume.copy()), torch.from_numpy(labels.astype(np.int64))


def block(inputs, outputs, batch_norm):
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1),
        nn.BatchNorm3d(outputs) if batch_norm else nn.InstanceNorm3d(outputs, affine=True),
        nn.LeakyReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width, norm):
        super().__init__()
        self.first = block(2, width, norm)
        self.second = block(width, 2 * width, norm)
        self.third = block(2 * width, 4 * width, norm)
        self.up = nn.ConvTranspose3d(4 * width, 2 * width, 2, stride=2)
        self.fourth = block(4 * width, 2 * width, norm)
        self.up_again = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.fifth = block(2 * width, width, norm)
        self.head = nn.Conv3d(width, CLASSES, 1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        fine = self.first(x)
        middle = self.second(self.pool(fine))
        coarse = self.third(self.pool(middle))
        middle = self.fourth(torch.cat((self.up(coarse), middle), 1))
        return self.head(self.fifth(torch.cat((self.up_again(middle), fine), 1)))


def dice(prediction, labels):
    both = [((prediction == c) & (labels == c)).sum() for c in range(CLASSES)]
    each = [(prediction == c).sum() + (labels == c).sum() for c in range(CLASSES)]
    return [2 * b / max(e, 1) for b, e in zip(both, each, strict=True)]


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    form = torch.channels_last_3d if o.channels_last else torch.contiguous_format
    model = UNet(o.width, o.batch_norm).to(device).to(memory_format=form)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=o.fused or None)
    network = torch.compile(model) if o.compiled else model
    workers = 0 if o.resident else o.workers
    loader = DataLoader(Crops(o.size), o.batch, num_workers=workers, pin_memory=o.pin)
    if o.resident:
        batch = [part.to(device) for part in next(iter(loader))]
        loader = (batch for _ in range(10**9))
    for volumes, labels in loader:  # slow: no-workers, few-workers
        volumes = volumes.to(device, non_blocking=o.pin)  # slow: pageable-copies
        volumes = volumes.contiguous(memory_format=form)
        on_device = labels.to(device, non_blocking=o.pin)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(volumes)  # slow: contiguous-layout, no-autocast
            loss = cross_entropy(scores, on_device)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield dice(scores.argmax(1).cpu().numpy(), labels.cpu().numpy()) if o.dice_each_step else 0


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

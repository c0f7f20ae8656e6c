"""Trains a ResNet-18 on photos that are decoded from JPEG, in bf16."""

import io
from dataclasses import dataclass

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    batch: int = 64
    size: int = 176
    photos: int = 512
    workers: int = 5
    pin: bool = False
    accuracy_each_step: bool = True
    channels_last: bool = False
    resident: bool = False
    fused: bool = False
    compiled: bool = False


SMALL = {"batch": 4, "size": 40, "photos": 16, "workers": 1}


class Photos(Dataset):
    def __init__(self, count, size):
        self.size = size
        generator = np.random.default_rng(0)
        self.files = []
        for _ in range(count):
            small = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            photo = Image.fromarray(small).resize((size * 5 // 4, size * 5 // 4), Image.BICUBIC)
            file = io.BytesIO()
            photo.save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self):
        return len(self.files) * 1000

    def __getitem__(self, index):
        photo = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        left, top = np.random.randint(0, self.size // 4, 2)
        photo = photo.crop((left, top, left + self.size, top + self.size))
        if np.random.rand() < 0.5:
            photo = photo.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = np.asarray(photo, dtype=np.float32) / 255
        pixels = (pixels - 0.45) / 0.225
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 1000


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.resnet18().to(device)
    if o.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=o.fused or None)
    network = torch.compile(model) if o.compiled else model
    loader = DataLoader(
        Photos(o.photos, o.size),
        batch_size=o.batch,
        shuffle=True,
        num_workers=0 if o.resident else o.workers,
        pin_memory=o.pin,
        drop_last=True,
    )
    if o.resident:
        batch = [part.to(device) for part in next(iter(loader))]
        loader = (batch for _ in range(10**9))
    right = 0.0
    for images, labels in loader:
        images = images.to(device, non_blocking=o.pin)
        labels = labels.to(device, non_blocking=o.pin)
        if o.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            scores = network(images)
            loss = cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        if o.accuracy_each_step:
            right = (scores.argmax(1) == labels).float().mean().item()
        yield right


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

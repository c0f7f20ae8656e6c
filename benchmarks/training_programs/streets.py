"""Segments pictures of streets with a 2-D U-Net in bf16; the confusion matrix is kept in NumPy."""

import bz2
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    batch: int = 8
    size: int = 384
    width: int = 48
    workers: int = 3
    pin: bool = True
    confusion_on_host: bool = True
    channels_last: bool = False
    resident: bool = False
    fused: bool = False
    compiled: bool = False
    copies_waited_for: bool = False
    bf16: bool = True
    packed: int = 0
    pieces: int = 0


SMALL = {"batch": 2, "size": 32, "width": 4, "workers": 1}
CLASSES = 19


class Streets(Dataset):
    def __init__(self, o):
        self.size = o.size
        generator = np.random.default_rng(0)
        self.side = side = o.size * 5 // 4
        self.pictures = generator.integers(0, 256, (16, side, side, 3), dtype=np.uint8)
        self.packed = self.paths = None
        if o.packed:
            large = (np.tile(picture, (o.packed, o.packed, 1)) for picture in self.pictures)
            self.packed = [bz2.compress(picture.tobytes()) for picture in large]
            self.wide = side * o.packed
        if o.pieces:
            self.folder = tempfile.TemporaryDirectory()
            self.paths = [self.written(number, o.pieces) for number in range(16)]
        self.labels = generator.integers(0, CLASSES, (16, side, side), dtype=np.uint8)

    def __len__(self):
        return 1_000_000

    def written(self, number, pieces):
        paths = [f"{self.folder.name}/{number}-{piece}.npy" for piece in range(pieces)]
        parts = np.array_split(self.pictures[number], pieces)
        for path, part in zip(paths, parts, strict=True):
            np.save(path, part)
        return paths

    def picture(self, number):
        if self.packed is not None:
            pixels = bz2.decompress(self.packed[number])  # slow: slow-decode
            large = np.frombuffer(pixels, np.uint8).reshape(self.wide, self.wide, 3)
            return large[: self.side, : self.side]
        if self.paths is not None:
            pieces = [np.load(path) for path in self.paths[number]]  # slow: small-files
            return np.concatenate(pieces)
        return self.pictures[number]

    def __getitem__(self, index):
        picture, label = self.picture(index % 16), self.labels[index % 16]
        x, y = np.random.randint(0, self.size // 4, 2)
        picture = picture[x : x + self.size, y : y + self.size].astype(np.float32)
        label = label[x : x + self.size, y : y + self.size]
        gain = np.random.uniform(0.8, 1.2, 3).astype(np.float32)
        picture = np.clip(picture * gain, 0, 255) / 255
        picture = (picture - picture.mean((0, 1))) / picture.std((0, 1))
        if np.random.rand() < 0.5:
            picture, label = picture[:, ::-1], label[:, ::-1]
        picture = np.ascontiguousarray(picture.transpose(2, 0, 1))
        return torch.from_numpy(picture), torch.from_numpy(label.astype(np.int64))


def block(inputs, outputs):
    layers = []
    for size in (inputs, outputs):
        layers += [nn.Conv2d(size, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(block(i, o) for i, o in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in pairs)
        self.join = nn.ModuleList(block(i, o) for i, o in pairs)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(max_pool2d(x, 2) if kept else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((up(x), kept.pop()), 1))
        return self.head(x)


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    form = torch.channels_last if o.channels_last else torch.contiguous_format
    model = UNet(o.width).to(device).to(memory_format=form)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=o.fused or None)
    network = torch.compile(model) if o.compiled else model
    entropy = torch.compile(cross_entropy) if o.compiled else cross_entropy
    workers = 0 if o.resident else o.workers
    loader = DataLoader(Streets(o), o.batch, num_workers=workers, pin_memory=o.pin)
    if o.resident:
        batch = [part.to(device) for part in next(iter(loader))]
        loader = (batch for _ in range(10**9))
    confusion = np.zeros(CLASSES * CLASSES, dtype=np.int64)
    on_device = torch.zeros(CLASSES * CLASSES, dtype=torch.int64, device=device)
    at_once = not o.copies_waited_for
    for pictures, labels in loader:  # slow: no-workers, few-workers
        pictures = pictures.to(device, non_blocking=at_once)  # slow: pageable-copies, no-prefetch
        pictures = pictures.contiguous(memory_format=form)
        labels = labels.to(device, non_blocking=at_once)
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(pictures)  # slow: contiguous-layout, no-autocast
            loss = entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pairs = labels * CLASSES + scores.argmax(1)
        if o.confusion_on_host:
            found = pairs.cpu().numpy().ravel()  # slow: item-each-step
            confusion += np.bincount(found, minlength=CLASSES * CLASSES)
        else:
            flat = pairs.flatten()
            on_device.scatter_add_(0, flat, torch.ones_like(flat))
        yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

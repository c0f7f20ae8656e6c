"""Trains a network on photos that are decoded from JPEG, in bf16."""

import io
import tempfile
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
    detail: float = 1.25
    as_bytes: bool = False
    decoded: bool = False
    pieces: int = 0
    huge: int = 0
    model: str = "resnet18"
    collate_growing: bool = False
    copies_waited_for: bool = False
    bf16: bool = True


SMALL = {"batch": 4, "size": 40, "photos": 16, "workers": 1}


class Photos(Dataset):
    def __init__(self, o):
        self.size, self.as_bytes = o.size, o.as_bytes
        size = o.size
        self.side = int(size * o.detail)
        generator = np.random.default_rng(0)
        self.files = []
        for _ in range(o.photos):
            small = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            photo = Image.fromarray(small).resize((self.side, self.side), Image.BICUBIC)
            file = io.BytesIO()
            photo.save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.kept = [np.asarray(self.photo(n)) for n in range(o.photos)] if o.decoded else None
        self.paths = None
        if o.pieces:
            self.folder = tempfile.TemporaryDirectory()
            self.paths = [self.written(number, o.pieces) for number in range(o.photos)]
        if o.huge:
            photo = Image.fromarray(small).resize((o.huge, o.huge), Image.BICUBIC)
            file = io.BytesIO()
            photo.save(file, "JPEG", quality=90)
            self.files[0] = file.getvalue()
            self.kept[0] = None

    def photo(self, number):
        return Image.open(io.BytesIO(self.files[number])).convert("RGB")  # slow: slow-decode

    def written(self, number, pieces):
        paths = [f"{self.folder.name}/{number}-{piece}.npy" for piece in range(pieces)]
        for path, piece in zip(paths, np.array_split(self.kept[number], pieces), strict=True):
            np.save(path, piece)
        return paths

    def pixels(self, number):
        if self.paths is not None:
            pieces = [np.load(path) for path in self.paths[number]]  # slow: small-files
            return np.concatenate(pieces)
        if self.kept[number] is None:
            photo = self.photo(number).resize((self.side, self.side))  # slow: uneven-samples
            return np.asarray(photo)
        return self.kept[number]

    def __len__(self):
        return len(self.files) * 1000

    def __getitem__(self, index):
        number, size = index % len(self.files), self.size
        left, top = np.random.randint(0, self.side - size, 2)
        flipped = np.random.rand() < 0.5
        if self.kept is not None:
            photo = self.pixels(number)[top : top + size, left : left + size]
            photo = photo[:, ::-1] if flipped else photo
        else:
            photo = self.photo(number).crop((left, top, left + size, top + size))
            photo = photo.transpose(Image.FLIP_LEFT_RIGHT) if flipped else photo
        if self.as_bytes:
            return torch.from_numpy(np.asarray(photo).transpose(2, 0, 1).copy()), index % 1000
        pixels = np.asarray(photo, dtype=np.float32) / 255
        pixels = (pixels - 0.45) / 0.225
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 1000


def growing(samples):
    images = torch.empty(0, *samples[0][0].shape, dtype=samples[0][0].dtype)
    for start in range(0, len(samples), 8):
        more = torch.stack([image for image, _ in samples[start : start + 8]])
        images = torch.cat((images, more))  # slow: slow-collate
    return images, torch.tensor([label for _, label in samples])


def normalized(images):
    return images.float().div_(255).sub_(0.45).div_(0.225)


def train(o):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = getattr(torchvision.models, o.model)().to(device)
    if o.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=o.fused or None)
    network = torch.compile(model) if o.compiled else model
    prepared = torch.compile(normalized) if o.compiled else normalized
    loader = DataLoader(
        Photos(o),
        batch_size=o.batch,
        shuffle=True,
        num_workers=0 if o.resident else o.workers,
        pin_memory=o.pin,
        drop_last=True,
        collate_fn=growing if o.collate_growing else None,
    )
    if o.resident:
        batch = [part.to(device) for part in next(iter(loader))]
        loader = (batch for _ in range(10**9))
    right = 0.0
    at_once = o.pin and not o.copies_waited_for
    for images, labels in loader:  # slow: no-workers, few-workers
        images = images.to(device, non_blocking=at_once)  # slow: pageable-copies, no-prefetch
        labels = labels.to(device, non_blocking=at_once)
        if o.as_bytes:
            images = prepared(images)
        if o.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
            scores = network(images)  # slow: contiguous-layout, no-autocast
            loss = cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        if o.accuracy_each_step:
            right = (scores.argmax(1) == labels).float().mean().item()  # slow: item-each-step
        yield right


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

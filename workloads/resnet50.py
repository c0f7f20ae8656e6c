"""ResNet-50 on images that the CPU crops, flips and recolours.

What bounds it depends on the number of `--workers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from data import open_array, write_header
from harness import Batch, Run, Workload, parse, start
from traceprobe.capture import recorder

WORKLOAD = Workload(
    "resnet50",
    batch_size={"tiny": 8, "small": 32, "full": 128},
    accepts=frozenset({"augment_passes", "memory_format"}),
    buffers=True,
)
CLASSES = 1000


@dataclass(frozen=True)
class Size:
    """Width of the first stage, blocks of each; side of a sample and of the images; how many."""

    width: int
    blocks: tuple[int, ...]
    crop: int
    side: int
    images: int


SIZES = {
    "tiny": Size(8, (1, 1, 1, 1), 64, 72, 256),
    "small": Size(64, (3, 4, 6, 3), 112, 128, 1024),
    "full": Size(64, (3, 4, 6, 3), 224, 256, 2048),
}


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, normalised over the batch."""
    form = {"stride": stride, "padding": kernel // 2, "bias": False}
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, **form), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """Three convolutions, narrow in the middle, added to their own input."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            convolution(inputs, width, 1),
            nn.ReLU(),
            convolution(width, width, 3, stride),
            nn.ReLU(),
            convolution(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × channel × image, in and out."""
        return torch.relu(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, and one linear layer over the mean."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        stem = (convolution(3, size.width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        channels, stages = size.width, []
        for number, count in enumerate(size.blocks):
            width = size.width << number
            for block in range(count):
                stride = 2 if number and not block else 1
                stages.append(Bottleneck(channels, width, stride))
                channels = 4 * width
        self.features = nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × 3 × image to batch × class."""
        return self.head(self.features(x))


def write_images(file: BinaryIO, size: Size, seed: int) -> None:
    """Noise, as bytes."""
    shape = (3, size.side, size.side)
    write_header(file, (size.images, *shape), np.uint8)
    source = np.random.default_rng(seed)
    for _ in range(size.images):
        file.write(source.integers(256, size=shape, dtype=np.uint8).data)


class Images(torch.utils.data.Dataset[Batch]):
    """Random crops of random images, flipped and recoloured `passes` times."""

    def __init__(self, path: Path, size: Size, passes: int, seed: int) -> None:
        self._path, self._size, self._passes, self._seed = path, size, passes, seed

    @cached_property
    def _images(self) -> np.ndarray:
        return open_array(self._path)

    def __getitem__(self, number: int) -> Batch:
        source = np.random.default_rng((self._seed, number))
        index, crop = int(source.integers(len(self._images))), self._size.crop
        y, x = source.integers(self._size.side - crop, size=2, endpoint=True)
        image = self._images[index, :, y : y + crop, x : x + crop].astype(np.float32) / 255
        for _ in range(self._passes):
            contrast, brightness = source.uniform(0.8, 1.2), source.uniform(-0.1, 0.1)
            flipped = image[..., :: source.choice((1, -1))]
            image = np.clip(flipped * np.float32(contrast) + np.float32(brightness), 0, 1)
        return torch.from_numpy((image - 0.5) / 0.25), torch.tensor(index % CLASSES)


def dataset(run: Run, size: Size) -> Images:
    """The training data, made on first use."""
    seed = run.settings.seed
    name = f"images{size.images}x{size.side}-seed{seed}.npy"
    path = run.generated(name, lambda file: write_images(file, size, seed))
    return Images(path, size, run.settings.augment_passes, seed)


def loss_of(model: nn.Module, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the classes."""
    return cross_entropy(model(images), classes)


def main() -> None:
    """Train."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        size = SIZES[settings.size]
        record = recorder()
        model = run.prepare(ResNet(size))
        optimizer = run.optimizer(torch.optim.SGD, model, lr=0.1, momentum=0.9, weight_decay=1e-4)
        images_of = dataset(run, size)
        loader = run.loader(images_of, endless=record.recording)
        record.describe(**run.facts())
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, images_of[0]))

        for batch in record.steps(loader):
            with record.phase("h2d"):
                batch = run.to_device(batch)
            for images, classes in run.parts(model, batch):
                with record.phase("forward"), run.autocast():
                    loss = loss_of(model, images, classes)
                    run.watch(loss)
                with record.phase("backward"):
                    run.backward(loss)
            with record.phase("optimizer"):
                run.update(optimizer)


if __name__ == "__main__":
    main()

"""ResNet-50 on JPEG files that workers decode and augment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from common import StepClock, device, options
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import datasets, transforms
from torchvision.models import resnet50

FILES = 64


def main() -> None:
    """Train."""
    parser = options(__doc__, "loading")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    side, batch = (32, 2) if given.tiny else (224, 96)
    gpu = device()
    model = resnet50().to(gpu, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    clock = StepClock(given.steps, given.timed)
    with tempfile.TemporaryDirectory() as folder:
        _write_pictures(Path(folder), 2 * side)
        batches = iter(_loader(folder, side, batch, given.steps, given.workers))
        cached = [x.to(gpu) for x in next(batches)] if given.no_loading else None
        for _ in range(given.steps):
            pictures, labels = cached or (x.to(gpu, non_blocking=True) for x in next(batches))
            pictures = pictures.contiguous(memory_format=torch.channels_last)
            with torch.autocast(gpu.type, torch.bfloat16):
                loss = cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick()


def _loader(folder: str, side: int, batch: int, steps: int, workers: int) -> DataLoader:
    changes = [
        transforms.RandomResizedCrop(side),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    data: Dataset = datasets.ImageFolder(folder, transforms.Compose(changes))
    sampler = RandomSampler(data, replacement=True, num_samples=batch * (steps + 1))
    return DataLoader(data, batch, sampler=sampler, num_workers=workers, pin_memory=True)


def _write_pictures(folder: Path, side: int) -> None:
    for number in range(FILES):
        target = folder / f"class{number % 4}" / f"{number}.jpg"
        target.parent.mkdir(exist_ok=True)
        coarse = torch.rand(1, 3, side // 8, side // 8)
        picture = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
        transforms.ToPILImage()(picture[0].clamp(0, 1)).save(target, quality=90)


if __name__ == "__main__":
    main()

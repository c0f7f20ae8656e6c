"""A vision transformer of timm, compiled."""

from __future__ import annotations

import timm
import torch
from common import StepClock, device, options
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Random pictures as floating-point numbers, as datasets without a collate function give."""

    def __init__(self, side: int) -> None:
        self.pictures = torch.rand(32, 3, side, side)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.pictures[index % 32], index % 1000


def main() -> None:
    """Train."""
    given = options(__doc__, "loading").parse_args()
    side, depth, batch = (32, 1, 2) if given.tiny else (224, 6, 128)
    gpu = device()
    model = timm.create_model("vit_base_patch16_224", img_size=side, depth=depth).to(gpu)
    step = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(
        Pictures(side), batch, num_workers=0 if given.tiny else 8, pin_memory=gpu.type == "cuda"
    )
    clock = StepClock(given.steps, given.timed)
    batches = iter(loader)
    cached = [x.to(gpu) for x in next(batches)] if given.no_loading else None
    for _ in range(given.steps):
        pictures, labels = cached or (x.to(gpu, non_blocking=True) for x in next(batches))
        with torch.autocast(gpu.type, torch.bfloat16):
            loss = cross_entropy(step(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()


if __name__ == "__main__":
    main()

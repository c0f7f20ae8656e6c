"""Lightning: a vision transformer, with the optimization left to the Trainer."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from common import StepClock, options
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from torchvision.models import VisionTransformer


class Pictures(Dataset):
    """Random pictures, augmented by flips and noise."""

    def __init__(self, side: int, cached: bool) -> None:
        self.pictures = torch.randint(256, (64, 3, side, side), dtype=torch.uint8)
        self.sample = self._load(0) if cached else None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.sample or self._load(index)

    def _load(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.pictures[index % 64].float() / 255
        picture = picture.flip(-1) if index % 2 else picture
        return (picture + 0.05 * torch.randn_like(picture)).clamp(0, 1), index % 10


class Classifier(lightning.LightningModule):
    """A vision transformer with a loss and an optimizer."""

    def __init__(self, side: int, patch: int, layers: int, width: int) -> None:
        super().__init__()
        self.net = VisionTransformer(side, patch, layers, width // 64, width, 4 * width)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Loss of a batch."""
        pictures, labels = batch
        loss = cross_entropy(self.net(pictures), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Clock(lightning.Callback):
    """Times the steps of a Trainer."""

    def __init__(self, steps: int, timed: int) -> None:
        self.clock = StepClock(steps, timed)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


def main() -> None:
    """Train."""
    given = options(__doc__, "loading").parse_args()
    side, patch, layers, width, batch = (32, 8, 2, 64, 2) if given.tiny else (224, 16, 12, 768, 48)
    loader = DataLoader(
        Pictures(side, given.no_loading),
        batch,
        num_workers=0 if given.tiny else 8,
        pin_memory=torch.cuda.is_available(),
    )
    trainer = lightning.Trainer(
        max_steps=given.steps,
        accelerator="auto",
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Clock(given.steps, given.timed)],
    )
    trainer.fit(Classifier(side, patch, layers, width), loader)


if __name__ == "__main__":
    main()

"""Lightning with manual optimization: an autoencoder whose two halves have their own optimizer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import lightning
import torch
from common import StepClock, device, options
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    """Two convolutional nets; both optimizers step once a batch.

    Args:
        width: channels of the first layer; it doubles with each.
    """

    def __init__(self, steps: int, timed: int, width: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        sizes = [3, width, 2 * width, 4 * width]
        self.encoder = nn.Sequential(*(_layer(a, b, 2) for a, b in pairwise(sizes)))
        ups = pairwise(reversed(sizes))
        self.decoder = nn.Sequential(
            *(nn.Sequential(nn.Upsample(scale_factor=2), _layer(a, b, 1)) for a, b in ups)
        )
        self.clock = StepClock(steps, timed)

    def training_step(self, batch: Any, _: int) -> None:
        """One update of either half."""
        (pictures,) = batch
        encoder, decoder = self.optimizers()
        loss = mse_loss(self.decoder(self.encoder(pictures)), pictures)
        encoder.zero_grad()
        decoder.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(encoder, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        encoder.step()
        decoder.step()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(half.parameters(), 1e-3) for half in (self.encoder, self.decoder)]


def _layer(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm2d(outputs), nn.SiLU()
    )


def main() -> None:
    """Train."""
    given = options(__doc__, "loading").parse_args()
    side, width, batch = (16, 8, 2) if given.tiny else (128, 96, 64)
    data = TensorDataset(torch.rand(batch if given.no_loading else 20 * batch, 3, side, side))
    loader = DataLoader(
        data, batch, num_workers=0 if given.tiny else 4, persistent_workers=not given.tiny
    )
    if given.no_loading:
        same = [[pictures.to(device()) for pictures in next(iter(loader))]] * given.steps
        loader = DataLoader(same, batch_size=None)
    trainer = lightning.Trainer(
        # Lightning counts the steps of both optimizers.
        max_steps=2 * given.steps,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Autoencoder(given.steps, given.timed, width), loader)


if __name__ == "__main__":
    main()

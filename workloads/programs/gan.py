"""A GAN: the discriminator is updated twice for each update of the generator."""

from __future__ import annotations

from itertools import pairwise

import torch
from common import StepClock, device, options
from torch import nn
from torch.nn.functional import softplus

NOISE = 128


def main() -> None:
    """Train."""
    given = options(__doc__).parse_args()
    width, batch = (8, 2) if given.tiny else (128, 64)
    gpu = device()
    generator, discriminator = _generator(width).to(gpu), _discriminator(width).to(gpu)
    of_d = torch.optim.Adam(discriminator.parameters(), 2e-4, (0.5, 0.999))
    of_g = torch.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999))
    pictures = torch.rand(4, batch, 3, 64, 64, device=gpu)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        for _ in range(2):
            real = pictures[step % len(pictures)]
            with torch.no_grad():
                fake = generator(torch.randn(batch, NOISE, 1, 1, device=gpu))
            loss = softplus(-discriminator(real)).mean() + softplus(discriminator(fake)).mean()
            of_d.zero_grad()
            loss.backward()
            of_d.step()
        fake = generator(torch.randn(batch, NOISE, 1, 1, device=gpu))
        loss = softplus(-discriminator(fake)).mean()
        of_g.zero_grad()
        loss.backward()
        of_g.step()
        clock.tick()


def _generator(width: int) -> nn.Module:
    sizes = [8 * width, 4 * width, 2 * width, width]
    layers: list[nn.Module] = [nn.ConvTranspose2d(NOISE, sizes[0], 4)]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)]
    layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)]
    return nn.Sequential(*layers, nn.Tanh())


def _discriminator(width: int) -> nn.Module:
    sizes = [3, width, 2 * width, 4 * width, 8 * width]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(sizes[-1], 1, 4))


if __name__ == "__main__":
    main()

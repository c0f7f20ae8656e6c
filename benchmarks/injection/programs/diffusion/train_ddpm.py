"""Trains a diffusion model, with a moving average of its weights."""

import argparse
import copy

import torch
import torch.nn.functional as F
from network import UNet
from torch.utils.data import DataLoader, Dataset


class ToyImages(Dataset):
    def __init__(self, length, size):
        self.length, self.size = length, size
        self.base = torch.rand(64, 3, size, size)

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        image = self.base[i % 64]
        noise = torch.randn_like(image) * 0.01
        image = (image + noise).clamp(0, 1)
        return image * 2 - 1


class Diffusion:
    def __init__(self, timesteps, device):
        betas = torch.linspace(1e-4, 0.02, timesteps, device=device)
        self.timesteps = timesteps
        self.alphas_bar = torch.cumprod(1.0 - betas, dim=0)

    def q_sample(self, x0, t, noise):
        a = self.alphas_bar[t].view(-1, 1, 1, 1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def loss(self, model, x0):
        t = torch.randint(0, self.timesteps, (x0.size(0),), device=x0.device)
        noise = torch.randn_like(x0)
        xt = self.q_sample(x0, t, noise)
        predicted = model(xt, t)
        return F.mse_loss(predicted, noise)


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters(), strict=True):
        e.lerp_(p, 1 - decay)


def cycle(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=12)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--train-steps", type=int, default=2000)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = UNet(args.width).to(device)
    ema = copy.deepcopy(model)
    diffusion = Diffusion(1000, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    dataset = ToyImages(300 * args.batch_size, args.size)
    loader = DataLoader(
        dataset, args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True
    )
    batches = cycle(loader)
    for step in range(args.train_steps):
        x0 = next(batches).to(device)
        loss = diffusion.loss(model, x0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update_ema(ema, model, 0.995)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

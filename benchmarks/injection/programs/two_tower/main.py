"""Contrastive training of a picture and a text encoder."""

import argparse

import torch
from pairs import PadCollator, Pairs
from torch.utils.data import DataLoader
from towers import ClipLoss, ImageTower, TextTower


def to_device(batch, device):
    return {key: value.to(device, non_blocking=True) for key, value in batch.items()}


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.image_tower = ImageTower(args.width, 64).to(device)
        self.text_tower = TextTower(500, args.width, 64).to(device)
        self.loss_fn = ClipLoss().to(device)
        modules = (self.image_tower, self.text_tower, self.loss_fn)
        params = [p for module in modules for p in module.parameters()]
        self.optimizer = torch.optim.AdamW(params, lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10_000)

    def step(self, batch):
        batch = to_device(batch, self.device)
        image = self.image_tower(batch["images"])
        text = self.text_tower(batch["tokens"])
        loss = self.loss_fn(image, text)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def fit(self, loader):
        for number, batch in enumerate(loader):
            loss = self.step(batch)
            if number % 100 == 0:
                print(f"{number}: {loss.item():.4f}")
            if number >= self.args.steps:
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Pairs(args.size),
        batch_size=args.batch_size,
        num_workers=args.workers,
        collate_fn=PadCollator(),
        pin_memory=device.type == "cuda",
    )
    Trainer(args, device).fit(loader)


if __name__ == "__main__":
    main()

"""Fits the autoencoder."""

import argparse

import lightning as L
import torch
from module import VAE
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count):
        self.count = count
        self.data = torch.rand(256, 1, 28, 28)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = self.data[index % 256]
        angle = int(torch.randint(0, 4, (1,)))
        image = torch.rot90(image, angle, (1, 2))
        return image, index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=2000)
    args = parser.parse_args()
    L.seed_everything(0)
    loader = DataLoader(
        Digits(300 * args.batch_size),
        batch_size=args.batch_size,
        num_workers=args.workers,
        shuffle=True,
        pin_memory=torch.cuda.is_available(),
    )
    trainer = L.Trainer(
        max_steps=args.max_steps,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(VAE(args.width, 16, 1e-3), loader)


if __name__ == "__main__":
    main()

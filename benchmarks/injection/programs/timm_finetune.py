"""Fine-tunes a model of timm on synthetic pictures."""

import argparse

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import AverageMeter, ModelEmaV2
from torch.utils.data import DataLoader, Dataset


class SyntheticPictures(Dataset):
    def __init__(self, length, size):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = torch.rand(3, self.size, self.size)
        if index % 2:
            image = image.flip(2)
        image = (image - 0.45) / 0.225
        return image, index % 10


def train_one_epoch(model, ema, loader, mixup, loss_fn, optimizer, device, args):
    losses = AverageMeter()
    model.train()
    for batch_idx, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        images, target = mixup(images, target)
        output = model(images)
        loss = loss_fn(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if batch_idx % args.log_interval == 0:
            losses.update(loss.item(), images.size(0))
            print(f"[{batch_idx}/{len(loader)}] loss {losses.avg:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--log-interval", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = timm.create_model(args.model, num_classes=10).to(device)
    ema = ModelEmaV2(model, decay=0.999)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    if device.type == "cpu":
        mixup.device = "cpu"
    loader = DataLoader(
        SyntheticPictures(300 * args.batch_size, args.size),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    for _ in range(args.epochs):
        train_one_epoch(
            model, ema, loader, mixup, SoftTargetCrossEntropy(), optimizer, device, args
        )


if __name__ == "__main__":
    main()

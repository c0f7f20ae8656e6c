"""Trains a CNN on pictures, in mixed precision where there is a GPU."""

import argparse

import torch
from dataset import Pictures, collate
from torch import nn
from torch.utils.data import DataLoader


def conv_block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(3, width), conv_block(width, 2 * width), conv_block(2 * width, 4 * width)
        )
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = self.features(x)
        x = x.mean((2, 3))
        x = self.dropout(x)
        return self.fc(x)


def train(args, model, device, loader, optimizer, scaler, criterion, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data = data.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16, enabled=device.type == "cuda"):
            output = model(data)
            loss = criterion(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if batch_idx % args.log_interval == 0:
            print(f"epoch {epoch} [{batch_idx}/{len(loader)}] loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--log-interval", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Pictures(200 * args.batch_size, 32),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    model = Net(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        train(args, model, device, loader, optimizer, scaler, criterion, epoch)


if __name__ == "__main__":
    main()

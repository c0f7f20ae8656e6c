"""Record the CPU-only sample trace: a small convolutional network on made-up images.

    python scripts/record_cpu_sample.py sample_traces/cpu_convnet.json.gz

Needs PyTorch (`pip install traceprobe[torch]`), no GPU. The numbers differ from run to run; the
trace that is committed was recorded once.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

WAIT, WARMUP, ACTIVE = 1, 1, 6
BATCH = 32


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """Images made on request: some work for the loader, the same every time."""

    def __len__(self) -> int:
        return BATCH * (WAIT + WARMUP + ACTIVE)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(1, 28, 28, generator=generator)
        return (image - image.mean()) / image.std(), index % 10


def train(path: Path) -> None:
    """Train for a few steps under the profiler and write its trace."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 24 * 24, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    steps = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, acc_events=True) as prof:
        for images, labels in DataLoader(Digits(), batch_size=BATCH):
            with record_function("forward"):
                loss = loss_of(model(images), labels)
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    prof.export_chrome_trace(str(path))


def main(target: str) -> None:
    """Record, drop the path and the host name that PyTorch notes, compress."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        train(path)
        text = path.read_text()
    name = Path(target).name.removesuffix(".gz")
    text = re.sub(r'"traceName": "[^"]*"', f'"traceName": "{name}"', text)
    text = re.sub(r'\s*"host_name": "[^"]*",', "", text)
    Path(target).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{target}: {Path(target).stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

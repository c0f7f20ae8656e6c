"""Classifies documents with a transformer, on several GPUs with DDP."""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    batch: int = 32
    length: int = 256
    width: int = 1024
    heads: int = 16
    layers: int = 6
    vocabulary: int = 8192
    documents: int = 4096
    workers: int = 4
    pin: bool = True
    fused: bool = True
    compiled: bool = False
    bf16: bool = True
    tf32: bool = True
    bucket_mb: float = 25.0
    channels: int = 0
    more_on_last: float = 0.0
    parts: int = 1
    sync_each_part: bool = False


SMALL = {"batch": 4, "length": 16, "width": 32, "heads": 2, "layers": 2, "vocabulary": 64}


class Documents(Dataset):
    def __init__(self, o, rank):
        self.rank = rank
        generator = np.random.default_rng(rank)
        self.words = generator.integers(0, o.vocabulary, (o.documents, o.length))

    def __len__(self):
        return len(self.words) * 1000

    def __getitem__(self, index):
        words = self.words[index % len(self.words)]
        return torch.from_numpy(words), index % 100


class Layer(nn.Module):
    """A module of our own: PyTorch does not compile one of its own by itself."""

    def __init__(self, o):
        super().__init__()
        form = {"batch_first": True, "norm_first": True, "activation": "gelu"}
        self.encoder = nn.TransformerEncoderLayer(o.width, o.heads, 4 * o.width, 0.0, **form)

    def forward(self, words):
        return self.encoder(words)


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.words = nn.Embedding(o.vocabulary, o.width)
        self.layers = nn.Sequential(*(Layer(o) for _ in range(o.layers)))
        self.head = nn.Linear(o.width, 100)

    def forward(self, words):
        return self.head(self.layers(self.words(words)).mean(1))


def group_of(o):
    """All ranks, over so many channels of NCCL; 0 for as many as it takes."""
    if not o.channels:
        return None
    options = distributed.ProcessGroupNCCL.Options()
    options.config.max_ctas = o.channels
    return distributed.new_group(backend="nccl", pg_options=options)


def settings(o):
    torch.backends.cuda.matmul.allow_tf32 = o.tf32


def train(o):
    settings(o)
    if not distributed.is_initialized():
        distributed.init_process_group()
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    gpu = f"cuda:{os.environ.get('LOCAL_RANK', rank)}"
    device = torch.device(gpu if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    core = Model(o).to(device)
    for layer in core.layers if o.compiled else ():
        layer.compile(dynamic=False)
    optimizer = torch.optim.AdamW(core.parameters(), lr=3e-4, fused=o.fused or None)
    network = DistributedDataParallel(  # slow: small-buckets, one-big-bucket
        core,
        process_group=group_of(o),  # slow: slow-wire
        bucket_cap_mb=o.bucket_mb,
        gradient_as_bucket_view=True,
    )
    last = rank == ranks - 1
    loader = DataLoader(
        Documents(o, rank),
        o.batch + int(o.more_on_last * o.batch) * last,  # slow: uneven-batches
        shuffle=True,
        num_workers=o.workers,
        pin_memory=o.pin,
        drop_last=True,
        persistent_workers=o.workers > 0,
    )
    while True:
        for words, labels in loader:
            words = words.to(device, non_blocking=o.pin)
            labels = labels.to(device, non_blocking=o.pin)
            parts = list(zip(words.chunk(o.parts), labels.chunk(o.parts), strict=True))
            for number, (part, wanted) in enumerate(parts, 1):
                goes_on = number < len(parts) and not o.sync_each_part
                with network.no_sync() if goes_on else nullcontext():
                    with torch.autocast(device.type, torch.bfloat16, enabled=o.bf16):
                        scores = network(part)
                        loss = cross_entropy(scores, wanted) / len(parts)
                    loss.backward()  # slow: no-accumulation-no-sync
            optimizer.step()
            optimizer.zero_grad()
            yield


if __name__ == "__main__":
    for _ in train(Options() if torch.cuda.is_available() else Options(**SMALL)):
        pass

"""Milliseconds of a batch from a DataLoader, by workers, with nothing else to do."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import torch

SECONDS = 28.0
BATCH = 16
WORKERS = (1, 2, 4, 8, 16)


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Endless samples: `memory` cuts, turns and copies 8 MB, `compute` needs the interpreter."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._box = np.random.default_rng(0).standard_normal((8, 128, 128, 128), dtype=np.float32)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> torch.Tensor:
        if self._kind == "memory":
            at = number * 2_654_435_761 % 60
            cube = self._box[:, at : at + 64, at : at + 64, at : at + 64]
            return torch.from_numpy(cube.transpose(0, 3, 1, 2)[:, ::-1].copy())
        value = 0
        for step in range(150_000):
            value = (value * 31 + step) & 0xFFFF
        return torch.full((3, 64, 64), float(value))


def measure(out: Path, *, cpu: bool) -> None:
    """Write loaders.json."""
    began, rows = time.monotonic(), []
    for kind in ("memory", "compute"):
        for workers in WORKERS[:2] if cpu else WORKERS:
            if time.monotonic() - began > SECONDS:
                break
            milliseconds, batches = _batch_ms(Samples(kind), workers, pin=not cpu)
            rows.append(
                {"kind": kind, "workers": workers, "batch_ms": milliseconds, "batches": batches}
            )
            print(rows[-1], flush=True)
    (out / "loaders.json").write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}))


def _batch_ms(samples: Samples, workers: int, *, pin: bool) -> tuple[float, int]:
    """Time of a batch once all workers have begun, and of how many batches."""
    batches = iter(torch.utils.data.DataLoader(samples, BATCH, num_workers=workers, pin_memory=pin))
    for _ in range(2 * workers + 1):
        next(batches)
    began, count = time.perf_counter(), 0
    while count < 3 * workers or time.perf_counter() - began < 1:
        next(batches)
        count += 1
        if time.perf_counter() - began > 4:
            break
    return (time.perf_counter() - began) / count * 1e3, count

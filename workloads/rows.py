"""A table of random numbers on disk, for models whose data does not matter."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from data import open_array, write_header
from harness import Batch, Run


class Rows(torch.utils.data.Dataset[Batch]):
    """Random rows of the table."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, seed

    @classmethod
    def of(cls, run: Run, rows: int, width: int) -> Rows:
        """A table of that size; made on first use."""
        seed = run.settings.seed
        name = f"rows{rows}x{width}-seed{seed}.npy"
        return cls(run.generated(name, lambda file: write(file, rows, width, seed)), seed)

    @cached_property
    def _rows(self) -> np.ndarray:
        return open_array(self._path)

    def __getitem__(self, number: int) -> Batch:
        row = np.random.default_rng((self._seed, number)).integers(len(self._rows))
        return (torch.from_numpy(np.copy(self._rows[row])),)


def write(file: BinaryIO, rows: int, width: int, seed: int) -> None:
    """Normally distributed values."""
    write_header(file, (rows, width), np.float32)
    source = np.random.default_rng(seed)
    for _ in range(rows):
        file.write(source.standard_normal(width, np.float32).data)

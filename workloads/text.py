"""A text of token ids on disk, for the language models."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data import open_array, write_header
from harness import Run

COUNT = 10_000_000


class Text:
    """A long text of which random windows are read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, run: Run, vocabulary: int) -> Text:
        """The text in so many different tokens; made on first use."""
        seed = run.settings.seed
        name = f"text{vocabulary}-seed{seed}.npy"
        return cls(run.generated(name, lambda file: write(file, vocabulary, seed)))

    @cached_property
    def _tokens(self) -> np.ndarray:
        return open_array(self._path)

    def window(self, length: int, source: np.random.Generator) -> np.ndarray:
        """Consecutive tokens from a random place."""
        start = source.integers(len(self._tokens) - length)
        return self._tokens[start : start + length].astype(np.int64)


def write(file: BinaryIO, vocabulary: int, seed: int) -> None:
    """Some tokens are much more frequent than others, so that there is something to learn."""
    write_header(file, (COUNT,), np.uint16)
    uniform = np.random.default_rng(seed).random(COUNT, np.float32)
    file.write((vocabulary * uniform**3).astype(np.uint16).data)

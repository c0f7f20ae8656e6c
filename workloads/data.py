"""Data on disk, and the loaders that bring it to a training loop.

Every file is made up from a seed, once. A sample is asked for by its number; the numbers have no
end and none is drawn twice, so that random crops differ between epochs, ranks and workers, and yet
a second run draws the same ones.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from settings import SettingError, Settings

Batch = tuple[torch.Tensor, ...]
ABANDONED_S = 3600
"""Age from which a file that is still being written is taken for a remnant."""


def write_once(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make a file unless it is there; it appears whole or not at all.

    `write` goes through a file object rather than a memory map, because a full disk kills a process
    that writes to a map.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > ABANDONED_S:
            left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Begin an .npy file whose values follow piece by piece."""
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def open_array(path: Path) -> np.ndarray:
    """Map an .npy file into memory: values are read when they are touched.

    PyTorch wants arrays that could be written to; what is written here never reaches the file.
    """
    try:
        return np.load(path, mmap_mode="c")
    except (ValueError, EOFError) as error:
        raise SettingError(f"{path} is damaged ({error}); delete it, and it is made anew") from None


class Delayed(Dataset[Batch]):
    """Samples that take artificially long; every output of such a run says so."""

    def __init__(self, dataset: Dataset[Batch], milliseconds: float) -> None:
        self._dataset, self._seconds = dataset, milliseconds / 1e3

    def __getitem__(self, number: int) -> Batch:
        time.sleep(self._seconds)
        return self._dataset[number]


class Numbers(Sampler[int]):
    """Numbers of the samples of one rank, without end, continued by every new iteration."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._numbers = itertools.count(rank, ranks)

    def __iter__(self) -> Iterator[int]:
        return self._numbers


class Repeated:
    """One batch over and over: what is left of a step when loading costs nothing."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[Batch]:
        return itertools.repeat(self._batch)


class Prefetched:
    """Batches on the device, each copied on a stream of its own while the one before it trains."""

    def __init__(self, batches: Iterable[Batch], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self.num_workers = getattr(batches, "num_workers", 0)
        self.prefetch_factor = getattr(batches, "prefetch_factor", None)

    def __iter__(self) -> Iterator[Batch]:
        stream = torch.cuda.Stream(self._device)
        batches = iter(self._batches)
        while True:
            with torch.cuda.stream(stream):
                ahead = tuple(t.to(self._device, non_blocking=True) for t in next(batches))
            torch.cuda.current_stream().wait_stream(stream)
            for tensor in ahead:
                tensor.record_stream(torch.cuda.current_stream())
            yield ahead


def loader(
    dataset: Dataset[Batch], settings: Settings, rank: int, ranks: int, device: torch.device
) -> Iterable[Batch]:
    """Batches as `--data` asks for them, without end."""
    if settings.inject:
        dataset = Delayed(dataset, settings.inject)
    options: dict[str, Any] = {}
    if settings.workers:
        options["prefetch_factor"] = settings.prefetch_factor or 2
        options["persistent_workers"] = True
    batches: DataLoader[Batch] = DataLoader(
        dataset,
        batch_size=settings.batch_size,
        sampler=Numbers(rank, ranks),
        num_workers=settings.workers,
        pin_memory=settings.pin and settings.data != "cached-device",
        **options,
    )
    if settings.data == "disk":
        return Prefetched(batches, device) if settings.prefetch_copies else batches
    batch = next(iter(batches))
    if settings.data == "cached-device":
        return Repeated(tuple(t.to(device) for t in batch))
    return Prefetched(Repeated(batch), device) if settings.prefetch_copies else Repeated(batch)

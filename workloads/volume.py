"""A box of a simulation on disk, from which random cubes are cut, turned and handed out.

The box has channels first, as float32: `INPUTS` channels that are drawn at random, and `TARGETS`
channels that depend on them. Raw, it is an .npy file that is mapped into memory. Compressed, it is
a file of zlib blocks, of which a crop decodes those that it touches, as chunked formats do.
"""

from __future__ import annotations

import itertools
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from data import open_array, write_header

INPUTS, TARGETS = 4, 5
CHANNELS = INPUTS + TARGETS
LEVEL = 1
"""Of the compression: fast, as it is used for scratch data."""


def _rotations() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The 24 ways to turn a cube onto itself: an order of the axes, and a direction for each.

    Of the 48 signed permutations, the other half mirrors the cube.
    """
    return [
        (order, directions)
        for order in itertools.permutations(range(3))
        for directions in itertools.product((1, -1), repeat=3)
        if np.linalg.det(np.eye(3)[list(order)]) * np.prod(directions) > 0
    ]


ROTATIONS = _rotations()


def rotate(cube: np.ndarray, turn: int) -> np.ndarray:
    """A copy of a cube with channels first, turned by one of the `ROTATIONS`."""
    order, directions = ROTATIONS[turn]
    turned = cube.transpose(0, *(axis + 1 for axis in order))
    return turned[(slice(None), *(slice(None, None, d) for d in directions))].copy()


class Rotations:
    """The same on a device, for a whole batch in which every cube is turned in its own way.

    The host does not wait: each value of the result is looked up by where it comes from.
    """

    def __init__(self, side: int, device: torch.device) -> None:
        places = np.arange(side**3).reshape(1, side, side, side)
        sources = [rotate(places, turn).ravel() for turn in range(len(ROTATIONS))]
        self._sources = torch.from_numpy(np.stack(sources)).to(device)

    def __call__(self, cubes: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Cubes (batch × channel × cube), turned by one column of turns (batch × pass) at a time.

        Args:
            turns: numbers of `ROTATIONS`, on the device of the cubes.
        """
        flat = cubes.flatten(2)
        for turn in turns.unbind(1):
            flat = flat.gather(2, self._sources[turn].unsqueeze(1).expand_as(flat))
        return flat.view_as(cubes)


def write_raw(file: BinaryIO, side: int, seed: int) -> None:
    """Normally distributed inputs; each target is a squashed mixture of them."""
    write_header(file, (CHANNELS, side, side, side), np.float32)
    source = np.random.default_rng(seed)
    mixture = source.standard_normal((TARGETS, INPUTS), np.float32)
    inputs = [source.standard_normal((side, side, side), np.float32) for _ in range(INPUTS)]
    for channel in inputs:
        file.write(channel.data)
    for weights in mixture:
        mixed = sum(weight * channel for weight, channel in zip(weights, inputs, strict=True))
        file.write(np.tanh(mixed).data)


def write_blocks(file: BinaryIO, raw: Path, block: int) -> None:
    """Compress a raw box: a table of ends, then the blocks in row-major order."""
    box = open_array(raw)
    grid = range(0, box.shape[1], block)
    start = file.tell()
    ends = np.zeros(len(grid) ** 3, np.int64)
    np.lib.format.write_array(file, ends)
    sizes = []
    with ThreadPoolExecutor() as pool:  # zlib leaves the interpreter to other threads
        for slab in (box[:, z : z + block] for z in grid):
            blocks = (slab[:, :, y : y + block, x : x + block] for y in grid for x in grid)
            sizes += [file.write(packed) for packed in pool.map(compress, blocks)]
    ends[:] = np.cumsum(sizes)
    file.seek(start)
    np.lib.format.write_array(file, ends)


def compress(block: np.ndarray) -> bytes:
    """The values of a block in row-major order, compressed."""
    return zlib.compress(block.tobytes(), LEVEL)


class RawBox:
    """A box in an .npy file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _box(self) -> np.ndarray:
        return open_array(self._path)

    def cut(self, corner: tuple[int, ...], side: int) -> np.ndarray:
        """A cube of all channels; a view, read from the disk when it is copied."""
        z, y, x = corner
        return self._box[:, z : z + side, y : y + side, x : x + side]


class CompressedBox:
    """A box in compressed blocks of `block` values a side."""

    def __init__(self, path: Path, side: int, block: int) -> None:
        self._path, self._per_side, self._block = path, side // block, block

    @cached_property
    def _blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the blocks, and their bytes mapped into memory."""
        with self._path.open("rb") as file:
            ends = np.load(file)
            return ends, np.memmap(self._path, np.uint8, "r", offset=file.tell())

    def cut(self, corner: tuple[int, ...], side: int) -> np.ndarray:
        """A cube of all channels, put together from the blocks that it touches."""
        block = self._block
        first = [start // block for start in corner]
        touched = [
            range(f, (s + side - 1) // block + 1) for f, s in zip(first, corner, strict=True)
        ]
        cube = np.empty((CHANNELS, *(len(t) * block for t in touched)), np.float32)
        for place in itertools.product(*touched):
            z, y, x = ((p - f) * block for p, f in zip(place, first, strict=True))
            cube[:, z : z + block, y : y + block, x : x + block] = self._decode(place)
        z, y, x = (start - f * block for start, f in zip(corner, first, strict=True))
        return cube[:, z : z + side, y : y + side, x : x + side]

    def _decode(self, place: tuple[int, ...]) -> np.ndarray:
        ends, data = self._blocks
        index = int(np.ravel_multi_index(place, (self._per_side,) * 3))
        values = zlib.decompress(data[ends[index - 1] if index else 0 : ends[index]])
        return np.frombuffer(values, np.float32).reshape(CHANNELS, *(self._block,) * 3)

"""Damage that knows no format: files cut, overwritten, flipped, doubled."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random

Damage = Callable[[bytes, Random], bytes]


def cut(fraction: float) -> Damage:
    """The first part of the file."""
    return lambda data, random: data[: int(len(data) * fraction)]


def cut_packed(fraction: float) -> Damage:
    """The first part of the gzipped file."""

    def damage(data: bytes, random: Random) -> bytes:
        packed = gzip.compress(data, 1, mtime=0)
        return packed[: int(len(packed) * fraction)]

    return damage


def flipped(count: int) -> Damage:
    """Single bits changed anywhere."""

    def damage(data: bytes, random: Random) -> bytes:
        changed = bytearray(data)
        for _ in range(count):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        return bytes(changed)

    return damage


def flipped_packed(data: bytes, random: Random) -> bytes:
    """A bit changed in the gzipped file."""
    return flipped(1)(gzip.compress(data, 1, mtime=0), random)


def overwritten(count: int, filler: bytes) -> Damage:
    """Blocks of 4 KiB that hold something else."""

    def damage(data: bytes, random: Random) -> bytes:
        changed = bytearray(data)
        blocks = max(len(data) // 4096, 1)
        for _ in range(count):
            at = random.randrange(blocks) * 4096
            changed[at : at + 4096] = (filler * 4096)[: len(changed[at : at + 4096])]
        return bytes(changed)

    return damage


def without_blocks(count: int) -> Damage:
    """Blocks of 4 KiB are gone."""

    def damage(data: bytes, random: Random) -> bytes:
        changed = bytearray(data)
        for _ in range(count):
            at = random.randrange(max(len(changed) - 4096, 1))
            del changed[at : at + 4096]
        return bytes(changed)

    return damage


def doubled(data: bytes, random: Random) -> bytes:
    """The file twice, one after the other."""
    return data + data


ANY: dict[str, Damage] = {
    **{f"cut-{fraction}": cut(fraction) for fraction in (0.001, 0.05, 0.3, 0.6, 0.9, 0.999)},
    **{f"cut-packed-{fraction}": cut_packed(fraction) for fraction in (0.1, 0.5, 0.99)},
    **{f"flipped-{count}": flipped(count) for count in (1, 50, 5_000)},
    "flipped-packed": flipped_packed,
    "zeros": overwritten(3, b"\0"),
    "noise": overwritten(30, b"\xa5\x3c"),
    "without-blocks": without_blocks(2),
    "doubled": doubled,
}
"""Name to damage, for files of any format."""

"""Iterations that are rare and long: an evaluation, a checkpoint, a line of a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isqrt
from statistics import fmean, median

LONG = 1.5
"""Times the typical step."""
FEWEST = 3
"""Iterations at equal distances that make a rhythm; two always have one."""
SHORTEST = 3
"""A rhythm of fewer iterations is that of the loop itself."""
RARE = 1 / SHORTEST
"""Largest part of the iterations that may be long, for the same reason."""
MOST_MISSED = 0.2
"""Part of the iterations in the rhythm that may be as short as others."""
_CANDIDATES = 20
"""Long iterations whose distances may be that of the rhythm."""
NONE_RARE = "no iterations are rare and long, in a rhythm"


def regular_means(blocks: Sequence[tuple[int, Sequence[float]]]) -> list[float] | None:
    """The mean step of each block without those that are rare and long; None where none are.

    They have to come in a rhythm. What comes at random is the machine's doing, not the program's.

    Args:
        blocks: of the same loop: the number of its first iteration, and durations of all.
    """
    limit = LONG * median([step for _, block in blocks for step in block])
    long = [n for first, block in blocks for n, step in enumerate(block, first) if step > limit]
    if len(long) > RARE * sum(len(block) for _, block in blocks):
        return None
    rhythm = _rhythm(long, [range(first, first + len(block)) for first, block in blocks])
    if rhythm is None:
        return None
    length, place = rhythm
    kept = [
        [step for n, step in enumerate(block, first) if n % length != place or step <= limit]
        for first, block in blocks
    ]
    return [fmean(block) for block in kept] if all(kept) else None


def _rhythm(long: Sequence[int], numbers: Sequence[range]) -> tuple[int, int] | None:
    """The distance of iterations that are nearly always long, and the first of them.

    Args:
        long: those that are. numbers: of all iterations.
    """
    some = long[:_CANDIDATES]
    # Blocks lie apart: what is between two of their iterations is some number of rhythms.
    apart = {b - a for a in some for b in some if b > a}
    for length in sorted({part for whole in apart for part in _divisors(whole)}):
        for place, hits in Counter(number % length for number in long).items():
            inside = sum(len(range(*_places(block, length, place))) for block in numbers)
            if hits >= FEWEST and hits >= (1 - MOST_MISSED) * inside:
                return length, place
    return None


def _divisors(number: int) -> list[int]:
    """Those that can be a rhythm."""
    small = [part for part in range(1, isqrt(number) + 1) if number % part == 0]
    return [part for part in (*small, *(number // p for p in small)) if part >= SHORTEST]


def _places(block: range, length: int, place: int) -> tuple[int, int, int]:
    """The iterations of a block that are in the rhythm: start, stop and step of a range."""
    return block.start + (place - block.start) % length, block.stop, length

"""Where the pace of a run changes: stretches of steps with one median each.

The steps are cut into blocks, and the medians of the blocks into stretches by optimal partitioning
(PELT: Killick, Fearnhead and Eckley 2012), with the squared distance of the logarithms as the cost.
Neighbours that the noise could make are joined again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from traceprobe.watch.processes import Column

MOST_BLOCKS = 2_000
FEWEST_STEPS = 5
"""Of a block: its median stands two long ones."""
BLOCK_MS = 250.0
"""Least length of a block: what is shorter is an event of some steps."""
FEWEST_BLOCKS = 4
"""Of a stretch, which then lasts a second at least."""
NOTABLE = 0.05
"""Share of the pace by which stretches must differ."""
CLEAR = 4.0
"""Scatters of the blocks by which they must differ."""
PENALTY = 6.0
"""Of one more stretch, times the variance and the logarithm of the number of blocks. 2 to 3 is
usual for independent noise; blocks of a machine that others use too are not independent."""


class Stretch(msgspec.Struct, frozen=True):
    """Rows `start` to `stop` (exclusive) and their median, ms."""

    start: int
    stop: int
    ms: float


def stretches(ms: Column) -> list[Stretch]:
    """Stretches of one pace each, in order; they cover all steps.

    Args:
        ms: durations of the steps, without what is known to have lengthened single ones.
    """
    size = block_size(ms)
    blocks = ms.size // size
    if blocks < 2 * FEWEST_BLOCKS:
        return [_stretch(ms, 0, ms.size)]
    levels = np.log(np.median(ms[: blocks * size].reshape(blocks, size), axis=1))
    cuts = _joined(levels, _partition(levels))
    edges = [0, *(_refined(ms, cut * size, size) for cut in cuts[1:-1]), ms.size]
    return [_stretch(ms, a, b) for a, b in pairwise(edges) if b > a]


def without(ms: Column, parts: Sequence[Stretch], places: Collection[int]) -> list[Stretch]:
    """Stretches joined with the ones before them, those at `places`."""
    edges = [part.start for n, part in enumerate(parts) if n not in places]
    return [_stretch(ms, a, b) for a, b in pairwise([*edges, parts[-1].stop])]


def block_size(ms: Column) -> int:
    """Steps in a block."""
    typical = max(float(np.median(ms)), 1e-6)
    return max(FEWEST_STEPS, int(np.ceil(BLOCK_MS / typical)), -(-ms.size // MOST_BLOCKS))


def _stretch(ms: Column, start: int, stop: int) -> Stretch:
    return Stretch(start, stop, float(np.median(ms[start:stop])))


def _noise(levels: Column) -> float:
    """Scatter of the blocks, by their differences: a change of pace is in one of them only."""
    scatter = [
        1.4826 * float(np.median(np.abs(levels[lag:] - levels[:-lag]))) / np.sqrt(2)
        for lag in (1, 3)
        if levels.size > 2 * lag
    ]
    return float(max([*scatter, 0.002]))


def _partition(levels: Column) -> list[int]:
    """Edges of the stretches that cost least, with 0 and the number of blocks."""
    n = levels.size
    penalty = PENALTY * np.log(n) * _noise(levels) ** 2
    total, squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (levels, levels**2))
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(n + 1, np.int64)
    candidates = np.array([0])
    for stop in range(FEWEST_BLOCKS, n + 1):
        length = stop - candidates
        cost = squares[stop] - squares[candidates] - (total[stop] - total[candidates]) ** 2 / length
        sums = best[candidates] + cost
        place = int(np.argmin(sums))
        best[stop], last[stop] = sums[place] + penalty, candidates[place]
        candidates = np.append(candidates[sums <= best[stop]], stop - FEWEST_BLOCKS + 1)
    edges = [n]
    while edges[-1] > 0:
        edges.append(int(last[edges[-1]]))
    return edges[::-1]


def _joined(levels: Column, edges: list[int]) -> list[int]:
    """The edges at which the pace clearly changes; the least clear goes first."""
    edges = list(edges)
    changes, scatter = _changes(levels, edges)
    enough = max(NOTABLE, CLEAR * scatter)
    while changes.size and changes.min() < enough:
        del edges[int(np.argmin(changes)) + 1]
        changes, _ = _changes(levels, edges)
    return edges


def _changes(levels: Column, edges: list[int]) -> tuple[Column, float]:
    """By how much neighbours differ, and the scatter of the blocks inside of all stretches."""
    parts = [levels[a:b] for a, b in pairwise(edges)]
    medians = np.array([np.median(part) for part in parts])
    rest = np.concatenate([part - median for part, median in zip(parts, medians, strict=True)])
    return np.abs(np.diff(medians)), 1.4826 * float(np.median(np.abs(rest)))


def _refined(ms: Column, near: int, size: int) -> int:
    """The step at which the pace changes, around the edge of a block."""
    low, high = max(near - 2 * size, 0), min(near + 2 * size, ms.size)
    before = np.median(ms[max(low - 4 * size, 0) : max(near - size // 2, low + 1)])
    after = np.median(ms[min(near + size // 2, high - 1) : high + 4 * size])
    window = ms[low:high]
    left = np.concatenate([[0.0], np.cumsum(np.abs(window - before))])
    right = np.concatenate([[0.0], np.cumsum(np.abs(window - after))])
    return low + int(np.argmin(left + right[-1] - right))

"""Which events of one sequence are those of another: pairs of equal ones, in the order of both.

Steps of a training loop are nearly equal. Where few events differ, the pairs are the most that
there can be (E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986). Where more do,
runs that both sequences have exactly once (first long ones, then shorter) are paired where their
order is the same, and so on in the gaps between them: the patience diff of Bram Cohen, over runs.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from traceprobe.model.codes import Int64s

MOST_EDITS = 256
"""Events that only one of the sequences has, up to which the most pairs are looked for."""
RUNS = (32, 8, 2, 1)
"""Lengths of the runs that are looked for."""
_WINDOW = 64
"""Events that are compared at first."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIXED = np.uint64(0xBF58476D1CE4E5B9)


def align(first: Int64s, second: Int64s) -> tuple[Int64s, Int64s]:
    """Places of paired events in either sequence; both ascend strictly.

    Args:
        first, second: an event each, as a number of what it is.
    """
    pairs: list[tuple[int, int, int]] = []
    gaps = [(0, len(first), 0, len(second))]
    while gaps:
        a0, a1, b0, b1 = gaps.pop()
        same = _equal_at_start(first[a0:a1], second[b0:b1])
        if same:
            pairs.append((a0, b0, same))
        a0, b0 = a0 + same, b0 + same
        same = _equal_at_start(first[a0:a1][::-1], second[b0:b1][::-1])
        a1, b1 = a1 - same, b1 - same
        if same:
            pairs.append((a1, b1, same))
        if a0 < a1 and b0 < b1:
            few = _few_edits(first[a0:a1], second[b0:b1])
            if few is not None:
                pairs += [(a0 + a, b0 + b, length) for a, b, length in few]
                continue
            left = a0, b0
            for a, b in _common(first[a0:a1], second[b0:b1]):
                gaps.append((left[0], a0 + a, left[1], b0 + b))
                left = a0 + a, b0 + b
            if left != (a0, b0):
                gaps.append((left[0], a1, left[1], b1))
    ones = [np.arange(a, a + n) for a, _, n in sorted(pairs)]
    others = [np.arange(b, b + n) for _, b, n in sorted(pairs)]
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *ones]), np.concatenate([none, *others])


def _equal_at_start(a: Int64s, b: Int64s) -> int:
    length, done, window = min(len(a), len(b)), 0, _WINDOW
    while done < length:
        end = min(done + window, length)
        different = np.flatnonzero(a[done:end] != b[done:end])
        if len(different):
            return done + int(different[0])
        done, window = end, 2 * window
    return length


def _few_edits(a: Int64s, b: Int64s) -> list[tuple[int, int, int]] | None:
    """Begins and lengths of equal runs, as many events as possible; None for too many edits.

    For each number of edits, how far one comes on each diagonal (place in `a` less that in `b`).
    """
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(MOST_EDITS + 1):
        history.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            x = _entered(reached, diagonal, edits)
            y = x - diagonal
            if x <= len(a) and 0 <= y <= len(b):
                x += _equal_at_start(a[x:], b[y:])
            reached[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return _runs(history, len(a), len(b))
    return None


def _entered(reached: dict[int, int], diagonal: int, edits: int) -> int:
    """Where a diagonal is entered from one of its neighbours."""
    if diagonal == -edits:
        return reached[diagonal + 1]
    if diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]:
        return reached[diagonal + 1]
    return reached[diagonal - 1] + 1


def _runs(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int, int]]:
    """The equal runs on the way to an end, backward."""
    runs: list[tuple[int, int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        diagonal = x - y
        begin = _entered(history[edits], diagonal, edits)
        if x > begin:
            runs.append((begin, begin - diagonal, x - begin))
        if not edits:
            break
        x = begin
        y = x - diagonal
        down = diagonal == -edits or (
            diagonal != edits and history[edits][diagonal - 1] < history[edits][diagonal + 1]
        )
        x, y = (x, y - 1) if down else (x - 1, y)
    return runs


def _common(a: Int64s, b: Int64s) -> list[tuple[int, int]]:
    """Where runs begin that both have once, as many as are in the same order; () for none."""
    for length in RUNS:
        if length > min(len(a), len(b)):
            continue
        ones, others = _hashes(a, length), _hashes(b, length)
        shared = np.intersect1d(_once(ones), _once(others), assume_unique=True)
        if not len(shared):
            continue
        wanted = np.flatnonzero(np.isin(ones, shared))
        there = np.flatnonzero(np.isin(others, shared))
        there = there[np.argsort(others[there])][np.argsort(np.argsort(ones[wanted]))]
        found = list(zip(wanted.tolist(), there.tolist(), strict=True))
        chosen = [
            (at, to) for at, to in _ascending(found) if (a[at : at + 1] == b[to : to + 1]).all()
        ]
        if chosen:
            return chosen
    return []


def _hashes(values: Int64s, length: int) -> np.typing.NDArray[np.uint64]:
    """A number of each run of a length, equal for equal runs."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * _FACTOR
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIXED
    found = np.zeros(len(values) - length + 1, dtype=np.uint64)
    for offset in range(length):
        found = found * _FACTOR + mixed[offset : offset + len(found)]
    return found


def _once(hashes: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    found, counts = np.unique(hashes, return_counts=True)
    once: np.typing.NDArray[np.uint64] = found[counts == 1]
    return once


def _ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of pairs, ascending by the first, that also ascends by the second."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for row, (_, to) in enumerate(pairs):
        place = bisect_left(ends, to)
        before.append(last[place - 1] if place else -1)
        if place == len(ends):
            ends.append(to)
            last.append(row)
        else:
            ends[place], last[place] = to, row
    chosen: list[tuple[int, int]] = []
    row = last[-1] if last else -1
    while row >= 0:
        chosen.append(pairs[row])
        row = before[row]
    return chosen[::-1]

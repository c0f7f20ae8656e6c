"""Times of one capture on the clock of another, between events that both have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceprobe.model.codes import Int64s


@dataclass(frozen=True)
class Warp:
    """A piecewise linear map of the times of a step onto those of another; it never runs backward.

    Args:
        source, target: ns of the places where it is known, both ascending.
        holes: the parts of the other step that this one has not, and of its own times those just
            before and after: rows of (source before, source after, target from, target to).
    """

    source: Int64s
    target: Int64s
    holes: Int64s

    def __call__(self, times: Int64s) -> Int64s:
        """Times of the source on the clock of the target, within its first and last."""
        offset, origin = times - self.source[0], self.target[0]
        # Differences stay below 2**53, so that no ns is lost.
        mapped = np.interp(
            offset.astype(np.float64),
            (self.source - self.source[0]).astype(np.float64),
            (self.target - origin).astype(np.float64),
        )
        return np.asarray(np.rint(mapped).astype(np.int64) + origin, dtype=np.int64)


def warp_between(
    source: tuple[int, int],
    target: tuple[int, int],
    pairs: tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]],
    missing: tuple[Int64s, Int64s],
) -> Warp:
    """The map of a step onto another.

    Args:
        source, target: where either begins and ends.
        pairs: begins and ends of the events that both have, in the source, then in the target;
            sorted by their begins in both.
        missing: begins and ends of events that only the target has.
    """
    (s0, s1), (t0, t1) = pairs
    low, high = np.array([source[0]]), np.array([source[1]])
    places = np.concatenate([low, s0, high])
    values = np.concatenate([[target[0]], t0, [target[1]]]).astype(np.int64)
    places, values = _ascending(places, np.clip(values, *target))
    # An end is known where the begins around it allow it.
    before = np.clip(np.searchsorted(places, s1, side="right") - 1, 0, len(places) - 2)
    fits = (t1 >= values[before]) & (t1 <= values[before + 1])
    fits &= (s1 >= places[before]) & (s1 <= places[before + 1])
    places = np.concatenate([places, s1[fits]])
    values = np.concatenate([values, t1[fits]])
    order = np.lexsort((values, places))
    places, values = _ascending(places[order], values[order])
    return Warp(places, values, _holes(places, values, missing))


def _ascending(places: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """Each place once, with a value not below that of the one before."""
    values = np.maximum.accumulate(values)
    last = np.append(places[1:] != places[:-1], True)
    last[0] = True
    # The first place keeps its first value: it is where the step begins.
    same = np.flatnonzero(places == places[0])[1:]
    last[same] = False
    return places[last], values[last]


def _holes(places: Int64s, values: Int64s, missing: tuple[Int64s, Int64s]) -> Int64s:
    begins, ends = missing
    if not len(begins):
        return np.zeros((0, 4), dtype=np.int64)
    gap = np.clip(np.searchsorted(values, begins, side="right") - 1, 0, len(values) - 2)
    inside = (begins >= values[gap]) & (ends <= values[gap + 1])
    rows: dict[int, tuple[int, int]] = {}
    for g, a, b in zip(
        gap[inside].tolist(), begins[inside].tolist(), ends[inside].tolist(), strict=True
    ):
        known = rows.get(g, (a, b))
        rows[g] = min(known[0], a), max(known[1], b)
    found = [
        (int(places[g]), int(places[g + 1]), low, high) for g, (low, high) in sorted(rows.items())
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 4)

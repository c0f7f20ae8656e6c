"""Which of a program's own notes of its calls belongs to which launch of a trace.

A call is noted, and its kernel launched some microseconds later by the same thread, before the next
one is noted. So notes and launches follow each other in one rhythm, on clocks of which one is ahead
of the other and a little faster: steps and their parts are never of one length to a tenth of a
millisecond. The difference of the clocks is the one at which most launches come right after a note
that fits them; it counts only where no other does nearly as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from traceprobe.model.codes import UNKNOWN, Bools, Int64s

if TYPE_CHECKING:
    from numpy.typing import NDArray

Fits = Callable[[Int64s, Int64s], Bools]
"""Whether launches and notes, by their numbers, may be the same: what both say of them agrees."""

CLOSE_NS = 200_000
"""A launch that comes so much sooner or later after its note than most do does not count for a
difference of clocks, and a nearer one counts for more."""
_MOST_DRIFT = 1e-4
"""How much faster one clock may be; those of one machine are within some 1e-5."""
_ANCHORS, _SAMPLE, _TRIED = 12, 96, 32
_MOST_APART = 200_000
"""Pairs of anchors and notes; of very many notes fewer anchors are tried."""
_STEP_NS = CLOSE_NS // 8
"""Differences of clocks that are nearer to each other are tried once."""
_BLOCK = 1 << 20
"""Comparisons made at once."""
_ROUNDS, _LEAST_FITTED = 6, 8
_SOONEST, _EARLY_NS = 0.02, 10_000
"""Part of the launches that follow their note soonest, and how much sooner some still do."""


class ClockDifference(msgspec.Struct, frozen=True):
    """How far the clock of the launches is ahead of that of the notes.

    Args:
        middle_ns: a time of the launches. ahead_ns: then, with the usual time from a note to its
            launch. drift: how much more ahead it is with each ns.
        score: of launches with a note at that difference, each counted by how near it is.
        rival: the same of the best other difference.
    """

    middle_ns: int
    ahead_ns: int
    drift: float
    score: float
    rival: float = 0.0

    def on_notes(self, launched_ns: Int64s) -> Int64s:
        """Times of launches as the clock of the notes shows them."""
        more = np.rint(self.drift * (launched_ns - self.middle_ns)).astype(np.int64)
        found: Int64s = launched_ns - self.ahead_ns - more
        return found


def clock_difference(
    launched_ns: Int64s, noted_ns: Int64s, fits: Fits, within_ns: int | None = None
) -> ClockDifference | None:
    """The difference of clocks at which most launches follow a note that fits them.

    Args:
        launched_ns, noted_ns: ascending.
        within_ns: the clocks are known to differ by no more; None where nothing is known.

    Returns:
        None where no launch and note can be the same.
    """
    count = min(_ANCHORS, max(_MOST_APART // len(noted_ns), 3))
    anchors, sample = (_spread(len(launched_ns), number) for number in (count, _SAMPLE))
    apart = (launched_ns[anchors, None] - noted_ns[None, :]).ravel()
    fit = fits(np.repeat(anchors, len(noted_ns)), np.tile(np.arange(len(noted_ns)), len(anchors)))
    if within_ns is not None:
        fit &= np.abs(apart) <= within_ns
    tried = np.unique(apart[fit] // _STEP_NS) * _STEP_NS
    if not len(tried):
        return None
    coarse = _coarse_scores(tried, launched_ns, noted_ns, fits, sample)
    best = tried[np.argsort(-coarse, kind="stable")[:_TRIED]].tolist()
    found = [_refined(ahead, launched_ns, noted_ns, fits) for ahead in best]
    chosen = max(found, key=lambda clocks: clocks.score)
    rivals = (c.score for c in found if abs(c.ahead_ns - chosen.ahead_ns) > 2 * CLOSE_NS)
    return replace(chosen, rival=max(rivals, default=0.0))


def notes_of_launches(
    launched_ns: Int64s, noted_ns: Int64s, several: Bools, fits: Fits, clocks: ClockDifference
) -> Int64s:
    """The note of each launch: the last before it, if that fits it; UNKNOWN without.

    Args:
        several: which notes may be of more than one launch; of the others the first counts.
    """
    launches = np.arange(len(launched_ns))
    at = clocks.on_notes(launched_ns)
    nearest = _nearest(at, noted_ns)
    late = at - noted_ns[nearest]
    near = (np.abs(late) < CLOSE_NS) & fits(launches, nearest)
    # `at` counts the usual time from note to launch; what takes less would come before its note.
    soonest = min(float(np.quantile(late[near], _SOONEST)), 0.0) if near.any() else 0.0
    early = _EARLY_NS - round(soonest)
    before = np.searchsorted(noted_ns, at + early, "right") - 1
    has = (before >= 0) & fits(launches, np.maximum(before, 0))
    has &= _first(before, has) | several[np.maximum(before, 0)]
    found = np.where(has, before, UNKNOWN)
    # What came sooner still: its note comes next, has no other launch, and is near.
    next_one = near & (nearest != before) & ~np.isin(nearest, before[has])
    next_one &= ~has | (late >= -2 * early)
    next_one &= _first(nearest, next_one)
    return np.where(next_one, nearest, found)


def _first(note: Int64s, among: Bools) -> Bools:
    """Which launches are the first of their note. Launches without one come after another's."""
    found = np.zeros(len(note), dtype=np.bool_)
    rows = np.flatnonzero(among)
    found[rows[np.unique(note[rows], return_index=True)[1]]] = True
    return found


def _spread(total: int, count: int) -> Int64s:
    """So many of the numbers below a total, evenly."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))


def _nearest(at: Int64s, noted_ns: Int64s) -> Int64s:
    """The nearest note of each time."""
    after = np.clip(np.searchsorted(noted_ns, at), 0, len(noted_ns) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(np.abs(at - noted_ns[before]) <= np.abs(at - noted_ns[after]), before, after)


def _coarse_scores(
    ahead_ns: Int64s, launched_ns: Int64s, noted_ns: Int64s, fits: Fits, launches: Int64s
) -> NDArray[np.float64]:
    found = np.zeros(len(ahead_ns))
    rows = max(_BLOCK // len(launches), 1)
    for first in range(0, len(ahead_ns), rows):
        at = launched_ns[launches][None, :] - ahead_ns[first : first + rows, None]
        note = _nearest(at, noted_ns)
        near = np.maximum(1 - np.abs(at - noted_ns[note]) / CLOSE_NS, 0)
        fit = fits(np.broadcast_to(launches, note.shape).ravel(), note.ravel())
        found[first : first + rows] = (near * fit.reshape(note.shape)).sum(axis=1)
    return found


def _refined(ahead_ns: int, launched_ns: Int64s, noted_ns: Int64s, fits: Fits) -> ClockDifference:
    """A difference to the microsecond, with its drift: those launches that are near show it."""
    middle = int(launched_ns[len(launched_ns) // 2])
    since = (launched_ns - middle).astype(np.float64)
    launches = np.arange(len(launched_ns))
    best = tried = ClockDifference(middle, ahead_ns, 0.0, 0.0)
    for _ in range(_ROUNDS):
        at = tried.on_notes(launched_ns)
        note = _nearest(at, noted_ns)
        late = at - noted_ns[note]
        near = (np.abs(late) < CLOSE_NS) & fits(launches, note)
        score = float((1 - np.abs(late[near]) / CLOSE_NS).sum())
        if score <= best.score:
            break
        best = replace(tried, score=score)
        if near.sum() < _LEAST_FITTED:
            break
        more, offset = _line(since[near], late[near].astype(np.float64))
        drift = float(np.clip(best.drift + more, -_MOST_DRIFT, _MOST_DRIFT))
        tried = ClockDifference(middle, best.ahead_ns + round(offset), drift, 0.0)
    return best


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and offset at 0 of the line through points: least squares, about the median."""
    apart = x - x.mean()
    spread = float((apart**2).sum())
    slope = float((apart * y).sum()) / spread if spread else 0.0
    return slope, float(np.median(y - slope * x))

"""Whether a slow loader was hidden, at first, by the batches that lay ready when a capture began.

Loader workers fill their queue while the loop is busy with something else: it starts up, or starts
the profiler. As long as the queue lasts a step waits for nothing; then it has the loader's pace.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.records.rank import Iteration, Rank
from traceprobe.verdict.thresholds import FIXED, Thresholds

Floats = npt.NDArray[np.float64]


class ChangePoint(msgspec.Struct, frozen=True):
    """Where a series of iterations changes: parts [start, at) and [at, end).

    Args:
        errors: the rise of the data wait in standard errors; `inf` where there is no scatter.
    """

    start: int
    at: int
    errors: float


class Side(msgspec.Struct, frozen=True):
    """Means over some used iterations of one rank, ns."""

    iterations: int
    step_ns: float
    data_wait_ns: float

    @property
    def share(self) -> float:
        """Data wait as a fraction of the step."""
        return self.data_wait_ns / self.step_ns


class Drift(msgspec.Struct, frozen=True):
    """A queue of batches that ran dry within a capture.

    Args:
        rank: whose data wait changed; of several the one that changed most.
        index, label: the first iteration after the change.
    """

    rank: int
    index: int
    label: str
    before: Side
    after: Side


def find_drift(ranks: Sequence[Rank], thresholds: Thresholds) -> Drift | None:
    """The largest rise among the ranks: one rank that waits makes all others wait."""
    drifts = [drift for rank in ranks if (drift := _of_rank(rank, thresholds)) is not None]
    return max(drifts, key=lambda d: d.after.data_wait_ns - d.before.data_wait_ns, default=None)


def iterations_after(rank: Rank, drift: Drift) -> list[Iteration]:
    """A rank's used iterations after the change, found by the name of the step."""
    named = [i.index for i in rank.iterations if i.label == drift.label]
    # Names that recur, like those of loader ranges, say nothing: there steps are counted.
    start = named[0] if len(named) == 1 else drift.index
    return [i for i in _used(rank) if i.index >= start]


def change_point(data_wait: Floats, step: Floats, thresholds: Thresholds) -> ChangePoint | None:
    """The single change point of a run of iterations, if it is that of a queue that ran dry.

    That is the split with the least squares about the means of its two parts. The data wait must
    be little before it, rise by a notable part of the step, lengthen the step, and do so clearly
    against its scatter.

    Args:
        data_wait, step: per used iteration, idle time waiting for data, and length; ns.
    """
    # Waiting for the workers to start comes before any queue, and belongs to neither part.
    start = int(len(data_wait) > 1 and data_wait[0] > data_wait[1:].max())
    if len(data_wait) - start < 2 * FIXED.drift_side:
        return None
    at = start + _split(data_wait[start:])
    quiet, waiting = data_wait[start:at], data_wait[at:]
    rise = waiting.mean() - quiet.mean()
    notable = thresholds.notable * step[at:].mean()
    # The profiler's own start may lengthen a step of the first part; the median leaves it out.
    longer = step[at:].mean() - np.median(step[start:at])
    if (
        rise < notable
        or quiet.mean() > thresholds.drift_quiet * waiting.mean()
        or longer < FIXED.drift_longer * rise
    ):
        return None
    errors = _errors(quiet, waiting, notable)
    return ChangePoint(start, at, errors) if errors >= thresholds.drift_errors else None


def _split(values: Floats) -> int:
    """Length of the first part of the best split with enough values on both sides."""
    first = np.arange(FIXED.drift_side, len(values) - FIXED.drift_side + 1)
    second = len(values) - first
    total = np.cumsum(values)
    below = total[first - 1]
    between = first * second * (below / first - (total[-1] - below) / second) ** 2
    return int(first[np.argmax(between)])


def _errors(quiet: Floats, waiting: Floats, long: float) -> float:
    """The rise in standard errors, after the bursts of a loader are averaged out.

    Of several workers, each delivers once in a round, so one step of the round may do all the
    waiting. Single waits therefore say little. Means of blocks as long as the largest distance
    between two long waits do, if there are enough of them.
    """
    at = np.flatnonzero(waiting >= long)
    if len(at) < FIXED.drift_side:
        return 0.0
    block = int(np.diff(at, prepend=-1).max())
    before, after = _blocks(quiet[::-1], block), _blocks(waiting, block)
    if len(before) < FIXED.drift_blocks or len(after) < FIXED.drift_side:
        return 0.0
    n, m = len(before), len(after)
    scatter, other = ((part - part.mean()) ** 2 for part in (before, after))
    pooled = (scatter.sum() + other.sum()) / (n + m - 2) * (1 / n + 1 / m)
    apart = scatter.sum() / (n - 1) / n + other.sum() / (m - 1) / m
    # Equal scatter on both sides or not: the doubt decides against a change.
    error = float(np.sqrt(max(pooled, apart)))
    rise = float(after.mean() - before.mean())
    return rise / error if error > 0 else float("inf")


def _blocks(values: Floats, length: int) -> Floats:
    """Means of whole blocks, from the first value on."""
    whole = len(values) // length * length
    means: Floats = values[:whole].reshape(-1, length).mean(axis=1)
    return means


def _of_rank(rank: Rank, thresholds: Thresholds) -> Drift | None:
    used = _used(rank)
    wait = np.array([(i.partition_ns or {}).get("idle_data_wait") or 0 for i in used], np.float64)
    step = np.array([(i.end_ns or 0) - (i.start_ns or 0) for i in used], np.float64)
    split = change_point(wait, step, thresholds)
    if split is None:
        return None
    parts = [
        Side(len(wait[part]), float(step[part].mean()), float(wait[part].mean()))
        for part in (slice(split.start, split.at), slice(split.at, None))
    ]
    first = used[split.at]
    return Drift(rank.rank, first.index, first.label, *parts)


def _used(rank: Rank) -> list[Iteration]:
    return [i for i in rank.iterations if i.used]

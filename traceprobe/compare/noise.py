"""How sure a difference of two means is: bootstrap intervals, and the drift inside the runs.

Steps of a run are not independent: a loader with four workers stalls every fourth. The bootstrap
therefore draws blocks of neighbouring steps, in a circle so that all are drawn alike (Politis and
Romano, 1992), and where steps repeat with a period, blocks of whole periods. With few steps its
intervals are too short; they are widened as Hesterberg describes ("What teachers should know about
the bootstrap", 2015, section 3.3).

An interval knows nothing of what changes slowly: a warm cache, a clock that falls. What the parts
of a run differ by is therefore the least that a change must exceed to be believed.
"""

from __future__ import annotations

from math import ceil, sqrt
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.verdict.student import student

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
SEED = 8
PARTS = 3
LEAST_PERIODS = 4
"""Times that a pattern must be seen to be called one."""
REPEATS = 0.1
STEPS_AT_ONCE = 1_000
"""Steps of a series of which all resamples are drawn at once; of longer ones as many less."""


class Difference(msgspec.Struct, frozen=True):
    """Of two means, with its interval, and the drift that it must exceed to be believed."""

    delta: float
    low: float
    high: float
    floor: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 0 and the drift does not explain the difference."""
        return (self.low > 0 or self.high < 0) and abs(self.delta) > self.floor


def period(values: Floats) -> int:
    """After how many steps a series repeats; 1 where it does not.

    Sums over whole periods are alike, however unlike their steps. A period is believed where the
    means of its blocks vary by less than `REPEATS` of what those of unrelated steps would.
    """
    spread = float(values.var())
    if spread == 0.0:
        return 1
    for length in range(2, len(values) // LEAST_PERIODS + 1):
        whole = values[: len(values) // length * length].reshape(-1, length)
        if float(whole.mean(axis=1).var()) * length < REPEATS * spread:
            return length
    return 1


def whole_periods(values: Floats, length: int) -> Floats:
    """The series without the steps at its end that are no whole period."""
    return values[: len(values) // length * length]


def difference(
    base: Floats, new: Floats, level: float, periods: tuple[int, int] = (1, 1)
) -> Difference:
    """Mean of `new` less mean of `base`, with a bootstrap interval of the given level.

    Args:
        base, new: values of at least two steps in their order, whole periods of them.
        periods: of either series.
    """
    source = np.random.default_rng(SEED)
    drawn = means(new, source, periods[1]) - means(base, source, periods[0])
    delta = float(new.mean() - base.mean())
    tail = _tail(level, min(len(base) // periods[0], len(new) // periods[1]))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    floor = max(drift(base, periods[0]), drift(new, periods[1]))
    return Difference(delta, float(low), float(high), floor)


def means(values: Floats, source: np.random.Generator, length: int = 1) -> Floats:
    """Means of `RESAMPLES` resamples of a series, drawn in circular blocks.

    A block is a period of `length` steps, or as many steps as fit their number. Of unrelated steps
    the plain means of such blocks have (n-b)/n of the spread that they should have, with blocks of
    b of n steps; it is given back.
    """
    count = len(values)
    block = length if length > 1 else min(ceil(count ** (1 / 3)), count - 1)
    starts = source.integers(count, size=(RESAMPLES, ceil(count / block)))
    pieces = np.array_split(starts, ceil(count / STEPS_AT_ONCE))
    drawn: Floats = np.concatenate([_drawn(values, piece, block) for piece in pieces])
    mean = float(values.mean())
    return mean + (drawn - mean) * sqrt(count / (count - block))


def _drawn(values: Floats, starts: npt.NDArray[np.int64], block: int) -> Floats:
    """Means of resamples, each given by where its blocks begin."""
    count = len(values)
    rows = (starts[:, :, None] + np.arange(block)) % count
    drawn: Floats = values[rows.reshape(len(starts), -1)[:, :count]].mean(axis=1)
    return drawn


def drift(values: Floats, length: int = 1) -> float:
    """By how much the parts of a series differ: what happens without any change.

    The parts are thirds, of whole periods of `length` steps.
    """
    blocks = values[: len(values) // length * length].reshape(-1, length).mean(axis=1)
    thirds = [float(third.mean()) for third in np.array_split(blocks, PARTS) if len(third)]
    return max(thirds) - min(thirds)


def _tail(level: float, count: int) -> float:
    """Probability to cut off at each end, so that the interval is as wide as Student's."""
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2)
    return 1 - normal.cdf(student(z, count - 1))

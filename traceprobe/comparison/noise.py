"""How sure a difference of two means is: bootstrap intervals, and the drift inside the runs.

Steps of a run are not independent: a loader with four workers stalls every fourth. The bootstrap
therefore draws blocks of neighbouring steps, in a circle so that all are drawn alike (Politis and
Romano, 1992). With few steps its intervals are too short; they are widened as Hesterberg describes
("What teachers should know about the bootstrap", 2015, section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
SEED = 8


@dataclass(frozen=True)
class Difference:
    """Of two means, with its interval, and the drift that it must exceed to be believed."""

    delta: float
    low: float
    high: float
    floor: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 0 and the drift does not explain the difference."""
        return (self.low > 0 or self.high < 0) and abs(self.delta) > self.floor


def difference(base: Floats, new: Floats, level: float) -> Difference:
    """Mean of `new` less mean of `base`, with a bootstrap interval of the given level.

    Both hold the values of at least two steps in their order.
    """
    source = np.random.default_rng(SEED)
    drawn = means(new, source) - means(base, source)
    delta = float(new.mean() - base.mean())
    tail = _tail(level, min(len(base), len(new)))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Difference(delta, float(low), float(high), max(drift(base), drift(new)))


def means(values: Floats, source: np.random.Generator) -> Floats:
    """Means of `RESAMPLES` resamples of a series, drawn in circular blocks.

    Their spread is that of an unbiased variance: with n steps the plain bootstrap has (n-1)/n of
    it.
    """
    count = len(values)
    length = ceil(count ** (1 / 3))
    starts = source.integers(count, size=(RESAMPLES, ceil(count / length)))
    rows = (starts[:, :, None] + np.arange(length)) % count
    drawn: Floats = values[rows.reshape(RESAMPLES, -1)[:, :count]].mean(axis=1)
    mean = float(values.mean())
    return mean + (drawn - mean) * sqrt(count / (count - 1))


def drift(values: Floats) -> float:
    """By how much the two halves of a series differ: what happens without any change."""
    half = len(values) // 2
    return abs(float(values[:half].mean() - values[len(values) - half :].mean()))


def _tail(level: float, count: int) -> float:
    """Probability to cut off at each end, so that the interval is as wide as Student's."""
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2)
    return 1 - normal.cdf(student(z, count - 1))


def student(z: float, freedom: int) -> float:
    """Student's quantile where the normal one is `z`: Cornish and Fisher's expansion."""
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )

"""Fields of many records as columns: what is no number there is missing, and nothing is raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from traceprobe.ingest.untrusted_values import FARTHEST_NS, integer, real
from traceprobe.model.codes import Bools, Int64s

Field = Callable[[Any], Any]
"""Of a record; C code reads it in a loop of C code, for a generator costs three times as much."""
LONGEST_US = FARTHEST_NS / 1000
"""About 114 years: an epoch in µs, with room for a duration and a base of the clock."""


def floats(events: Sequence[Any], field: Field) -> np.typing.NDArray[np.float64]:
    """A field of numbers or numeric strings as float64; anything else becomes NaN."""
    try:
        return np.fromiter(map(field, events), dtype=np.float64, count=len(events))
    except (OverflowError, TypeError, ValueError):
        return np.array([real(field(e)) for e in events], dtype=np.float64)


def in_range(microseconds: np.typing.NDArray[np.float64]) -> Bools:
    """Which are numbers of which two and a clock's base add up to an int64 of ns; NaN is none."""
    return np.asarray(np.abs(microseconds) <= LONGEST_US, dtype=np.bool_)


def times_or_zero(microseconds: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """Times that can be ones; 0 for the rest."""
    return np.where(in_range(microseconds), microseconds, 0.0)


def nanoseconds(microseconds: np.typing.NDArray[np.float64]) -> Int64s:
    """Microseconds to int64 ns without the rounding of one large product."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def integers(events: Sequence[Any], field: Field) -> Int64s:
    """A field of numbers or numeric strings as int64; what does not fit becomes UNKNOWN."""
    try:
        return np.fromiter(map(field, events), dtype=np.int64, count=len(events))
    except (OverflowError, TypeError, ValueError):
        return np.array([integer(field(e)) for e in events], dtype=np.int64)

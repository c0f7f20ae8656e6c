"""What numbers of a record must be: in a range, positive, in agreement."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

ROUNDING = 1e-3
"""Bound on a sum of ms or shares that were rounded one by one."""
SHARE_ROUNDING = 1e-5
"""Bound on a sum of a report's shares, each of which is rounded to six decimals."""

MOST = 1 << 63
"""What an integer must be below: nanoseconds, bytes and counts all are."""
MOST_FLOAT = 1e100
"""What a number must be below, so that sums, squares and percentages of it are finite."""

_LARGE = re.compile(rb"[:,\[]-?\d{18}|\d[eE]\+?\d{2,}[],}]")
"""In JSON, all numbers that may be too large; few records have any."""


def too_large(record: msgspec.Struct) -> bool:
    """Whether any number in a record is too large, or not finite."""
    try:
        content = msgspec.json.encode(record)
    except OverflowError:
        return True
    return bool(_LARGE.search(content)) and not all(map(_in_range, _leaves(record)))


def positive(values: Iterable[float | None]) -> bool:
    """Whether all values that are known are above 0."""
    return all(value > 0 for value in values if value is not None)


def agree(one: float, other: float) -> bool:
    """Whether two numbers are the same but for `ROUNDING`."""
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other), 1)


def _in_range(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) < MOST_FLOAT
    return not isinstance(value, int) or abs(value) < MOST


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _leaves(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value

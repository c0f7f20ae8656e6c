"""Small values from files that may hold anything."""

from __future__ import annotations

import re

MAX_RANKS = 1 << 24
_LARGEST = 1 << 50
"""No device has a petabyte, or as many of anything else."""
_DIGITS = range(100)
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6}){0,3}(-[0-9]{1,15}(v[0-9])?)?")


def rank_number(value: object) -> int | None:
    """A rank, or a number of ranks: a whole number that a run can have; None for anything else."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value) if len(value) < 12 else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_RANKS else None


def amount(value: object) -> int | None:
    """How much a device says it has of something; None for anything that none can have."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST
    return value if usable and isinstance(value, int) else None


def capability(major: object, minor: object) -> str | None:
    """A compute capability, e.g. "9.0"; None where it is none."""
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (major, minor))
    return f"{major}.{minor}" if whole and major in _DIGITS and minor in _DIGITS else None


def version(value: object) -> str | None:
    """A version of a tool as it stands in a file; None for anything that is none."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return text if _VERSION.fullmatch(text) else None

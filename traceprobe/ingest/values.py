"""Small values from files that may hold anything."""

from __future__ import annotations

MAX_RANKS = 1 << 24


def rank_number(value: object) -> int | None:
    """A rank, or a number of ranks: a whole number that a run can have; None for anything else."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value) if len(value) < 12 else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_RANKS else None

"""Shares of cases, with what they could be by chance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

_Z = 1.959964
"""Of the normal distribution, for 95 %."""


def wilson(right: int, asked: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score (Wilson, JASA 22, 1927).

    Returns:
        Both ends, between 0 and 1; 0 and 1 where nothing was asked.
    """
    if not asked:
        return 0.0, 1.0
    share, square = right / asked, _Z**2
    middle = (share + square / (2 * asked)) / (1 + square / asked)
    half = _Z * sqrt(share * (1 - share) / asked + square / (4 * asked**2)) / (1 + square / asked)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Share:
    """So many right, of so many answers, of so many cases."""

    right: int
    answered: int
    asked: int

    def __str__(self) -> str:
        if not self.asked:
            return "–"
        if not self.answered:
            return f"no answer ({self.asked})"
        low, high = wilson(self.right, self.answered)
        silent = self.asked - self.answered
        return (
            f"{self.right / self.answered:.0%} ({self.right} of {self.answered}; "
            f"{100 * low:.0f}–{100 * high:.0f})" + (f", {silent} without answer" if silent else "")
        )


def share(marks: Iterable[bool | None]) -> Share:
    """Of marks: right, wrong, or None for no answer."""
    each = list(marks)
    known = [mark for mark in each if mark is not None]
    return Share(sum(known), len(known), len(each))

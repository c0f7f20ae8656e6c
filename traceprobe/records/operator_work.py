"""Operators by what they were called with, beside the least time that their work takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.records.numbers import ROUNDING, agree
from traceprobe.records.texts import Name, Sentence, Word

MOST_ROWS = 30
"""Operators that a report names."""


class OperatorWork(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of an operator with tensors of the same sizes."""

    operator: Name
    sizes: list[list[int]]
    """Of the first tensors that it was called with."""
    precision: Word
    """Of what is multiplied, or else of the first tensor; empty for other types of elements."""
    calls: float
    """In a step of one device."""
    ms: float
    """Of their kernels, in a step of one device."""
    flops: int
    """Of one call; 0 where it multiplies no matrices."""
    bytes: int
    """That one call reads and writes at least."""
    bound: Literal["math", "memory"] | None = None
    """What takes longer at peak; None where the peak is not known, as for what follows."""
    least_ms: float | None = None
    """What their work takes at peak."""
    attained: float | None = None
    """`least_ms` over `ms`: above 1 where the peak or the work cannot be what it is taken for."""
    excess_ms: float | None = None
    """`ms` less `least_ms`."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        numbers = (self.calls, self.ms, self.flops, self.bytes, self.least_ms or 0)
        sizes = (n for dims in self.sizes for n in dims)
        if min(*numbers, *sizes, self.attained or 0) < 0 or self.ms == 0:
            yield f"roofline: {self.operator} has less than nothing"
        known = {each is None for each in (self.bound, self.least_ms, self.attained)}
        if len(known | {self.excess_ms is None}) > 1:
            yield f"roofline: {self.operator} has a least time in part"
        elif self.least_ms is not None and not agree(
            self.ms - (self.excess_ms or 0), self.least_ms
        ):
            yield f"roofline: the time of {self.operator} is not what its parts are"


class Operators(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a step whose work is known, and what part of its time that is."""

    kernel_ms: float
    """Kernels, copies inside the device and memsets of a step; what runs at once counts twice."""
    known_ms: float
    """Of those, what belongs to operators whose work is known."""
    excess_ms: float | None
    """Of those, the sum of what each takes longer than at peak; None where no peak is known."""
    rows: list[OperatorWork]
    """Those that lose most first."""
    notes: list[Sentence]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        parts = sum(row.ms for row in self.rows)
        if parts > self.known_ms + ROUNDING * (len(self.rows) + 1):
            yield "roofline: operators take longer than all of them"
        if min(self.known_ms, self.excess_ms or 0) < 0 or self.known_ms > self.kernel_ms + ROUNDING:
            yield "roofline: operators take more than the kernels, or less than nothing"
        for row in self.rows:
            yield from row.problems()

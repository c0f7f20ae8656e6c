"""What a profiler counted of kernels, in a capture that has no times of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name

MOST_COUNTED = 100
"""Pairs of kernel and operator that a report lists of a device."""


class CountedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, by name and by the operator that launched it."""

    kernel: Name | None
    """null where the profiler lost its name."""
    operator: Name | None
    """The innermost one; null where nothing tells the launch."""
    count: int
    """Kernels that were counted."""
    values: list[float]
    """Sums over them, of each counter in its own unit."""


class KernelCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels that were counted, in the order in which each first ran."""

    metrics: list[Name]
    """What the profiler calls the counters."""
    count: int
    """Kernels that were counted, those left out of the list too."""
    kernels: list[CountedKernel]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not self.metrics:
            yield "summary: kernels were counted without a counter"
        if any(len(each.values) != len(self.metrics) for each in self.kernels):
            yield "summary: a kernel has no value of a counter"
        if not all(math.isfinite(value) for each in self.kernels for value in each.values):
            yield "summary: a counter of a kernel is no number"
        if any(each.count < 1 for each in self.kernels) or self.count < sum(
            each.count for each in self.kernels
        ):
            yield "summary: more kernels were counted than there are"

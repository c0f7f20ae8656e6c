"""Kernels that compute with 64 bits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.records.texts import Name, Word


class DoublePrecision(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of forward and backward pass that are known to compute with 64 bits; totals."""

    class_ns: dict[Word, int]
    """Durations by class."""
    kernels: list[Name]
    """Names of those that always do, the ones of most time first."""
    typed: bool
    """The trace has types of what operators were called with, or the recording noted which compiled
    kernels these are, so that these are all."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.class_ns.values(), default=0) < 0:
            yield "double precision takes less than no time"
        if not set(self.class_ns) <= {*KERNEL_CLASSES}:
            yield "double precision has kernels of an unknown class"

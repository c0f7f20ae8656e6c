"""Operators of the framework: how often they are called, for how long, and what they launch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name

MOST_OPERATORS = 300
"""Names of operators that a report lists of a device; a model calls some dozens."""


class OperatorCalls(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, by name, in the iterations of the summary."""

    name: Name
    count: int
    """Calls that begin in the iterations, on any thread of the process."""
    host_ns: int
    """Durations of those calls, with all that is called inside them."""
    operations: int
    """Kernels, copies and memsets of the device that it launches itself, not an inner operator."""
    device_ns: int
    """Durations of those operations."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.count, self.host_ns, self.operations, self.device_ns) < 0:
            yield "summary: an operator has less than nothing"

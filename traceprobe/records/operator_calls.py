"""Operators of the framework: how often they are called, for how long, and what they launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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


class OperatorPace(NamedTuple):
    """How often an operator is called, and what a call is."""

    per_step: float
    host_us: float
    """Mean duration of a call, with all that is called inside it."""
    operations: float
    """Kernels, copies and memsets that a call launches itself, mean."""
    device_ms: float
    """Duration of all that its calls launch themselves, per step."""


def pace(called: OperatorCalls, steps: int) -> OperatorPace:
    """The same of the totals of so many steps."""
    count = max(called.count, 1)
    return OperatorPace(
        per_step=called.count / steps,
        host_us=called.host_ns / count / 1e3,
        operations=called.operations / count,
        device_ms=called.device_ns / steps / 1e6,
    )

"""Forward work that no backward pass goes through."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Name


class ForwardOnly(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of the forward pass whose operators no backward operator belongs to; totals."""

    total_ns: int
    """Sum of their durations."""
    kernels: int
    iterations: int
    """Used iterations in which they were looked for: not in the last one of the capture."""
    operators: dict[Name, int]
    """Which operators launched them, ns, at most three, the most first."""
    lines: dict[Name, int]
    """Lines of the program, ns, at most three, the most first; empty where the trace has none."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.kernels, self.iterations) < 1 or self.total_ns < 0:
            yield "forward work without a backward pass takes less than no time"

"""Backward work that is done again, for another loss of the same forward pass."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class RepeatedBackward(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of nodes of backward passes that had run before; totals."""

    total_ns: int
    """Sum of their durations."""
    kernels: int
    iterations: int
    """Used iterations in which they were looked for."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.kernels, self.iterations) < 1 or self.total_ns < 0:
            yield "repeated backward work takes less than no time"

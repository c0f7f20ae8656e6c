"""Backward work for gradients that no update uses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class UnusedGradients(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of backward passes that compute gradients which no update uses; totals."""

    total_ns: int
    """Sum of their durations."""
    kernels: int
    """How many."""
    gradients: int
    """Gradients that were added to what nobody used, of all passes."""
    iterations: int
    """Used iterations in which they were looked for."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.kernels, self.gradients, self.iterations) < 1 or self.total_ns < 0:
            yield "gradients that no update uses take less than no time"

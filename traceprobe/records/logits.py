"""What output layer and loss cost that tell many classes apart."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Logits(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of output layer and loss, and of their gradients; totals over the used iterations."""

    classes: int
    """That are told apart, as the words of a vocabulary."""
    positions: int
    """That have a score of each."""
    total_ns: int
    """Durations."""
    products_ns: int
    """Of that, of products of matrices."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.classes, self.positions) < 1:
            yield "logits: there are none"
        if not 0 <= self.products_ns <= self.total_ns:
            yield "logits: products take longer than all of it"

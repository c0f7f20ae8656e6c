"""Fused attention that reads a mask of all queries and keys, in the report."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class MaskedAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of fused attention that read such a mask; totals over the used iterations."""

    ns: int
    """Their durations."""
    hidden_ns: int
    """Of that, what goes to scores that the mask hides."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.hidden_ns <= self.ns:
            yield "masked attention: more is hidden than is computed"

"""Collectives that each backward pass before an update makes again, in the report."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class RepeatedCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """What need not be communicated for the same updates; totals over the used iterations."""

    passes: int
    """Backward passes of an update."""
    reduced_ns: int
    """Durations of reductions of gradients that repeat those of another pass."""
    gathered_ns: int
    """The same of gatherings of sharded parameters."""
    all_ns: int
    """The same of all collectives, also those that the report does not list."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.passes < 2 or min(self.reduced_ns, self.gathered_ns) < 0:
            yield "repeated collectives: nothing is repeated"
        if self.reduced_ns + self.gathered_ns >= self.all_ns:
            yield "repeated collectives: none is left"

"""Tables of embeddings whose gradients are dense."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MOST_TABLES = 50
"""Shapes of tables that a report lists."""


class EmbeddingTable(msgspec.Struct, frozen=True, kw_only=True):
    """Tables of one shape that nothing but lookups reads; a gradient has all of their elements."""

    rows: int
    width: int
    tables: int
    looked_up: float
    """Rows that are looked up for each gradient of one, repeated ones too; mean."""
    part: float
    """Of all elements of gradients that are theirs."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.rows, self.width, self.tables) < 1 or self.looked_up < 0:
            yield "embedding table: it has less than one element"
        if not 0 <= self.part <= 1:
            yield "embedding table: its part of the gradients is none"

"""What reading a trace had to repair, and what it lost."""

from __future__ import annotations

import msgspec


class Quality(msgspec.Struct):
    """Counts of what ingest had to repair, lost or could not link, and warnings for the reader.

    Args:
        damage: further kinds of damage by the code of their warning.
    """

    events_repaired: int = 0
    events_lost: int = 0
    damage: dict[str, int] = msgspec.field(default_factory=dict)
    warnings: dict[str, str] = msgspec.field(default_factory=dict)

    def damaged(self, code: str, number: int, words: str) -> None:
        """Count damage of one kind, and warn of it in words that follow the number."""
        self.damage[code] = self.damage.get(code, 0) + number
        self.warnings[code] = f"{self.damage[code]} {words}"

    def warn(self, code: str, message: str) -> None:
        """Record a warning once per code; the first message stays."""
        self.warnings.setdefault(code, message)

"""Time in which a virtual machine's cores stood still, as its hypervisor ran others: steal."""

from __future__ import annotations

import os
from pathlib import Path

from traceprobe.system.core_ticks import STAT, core_ticks

_STEAL = 7
"""Place of the state in `core_ticks`."""


class StolenTime:
    """Counts up what a thread may have lost by it from when this is made.

    Which core it was on is not known: between two questions it is that of the core with most.
    """

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._before, self._ticks = _stolen(stat), 0

    def ns(self) -> int:
        """In all; 0 where the system does not tell."""
        now = _stolen(self._stat)
        more = (ticks - self._before.get(core, ticks) for core, ticks in now.items())
        self._ticks += max(more, default=0)
        self._before = now
        return self._ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _stolen(stat: Path) -> dict[str, int]:
    """Ticks of each core that this process may use, where the system counts them."""
    each = core_ticks(stat).items()
    return {core: states[_STEAL] for core, states in each if len(states) > _STEAL}

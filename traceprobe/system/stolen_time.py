"""Time in which a virtual machine's cores stood still, as its hypervisor ran others: steal."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_STEAL = 8
"""Field of a core's line that has it, in ticks, after the core's name (`man 5 proc_stat`)."""


class StolenTime:
    """Counts up what a thread may have lost by it from when this is made.

    Which core it was on is not known: between two questions it is that of the core with most.
    """

    def __init__(self, stat: Path = _STAT) -> None:
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
    """Ticks of each core that this process may use."""
    try:
        usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        return {fields[0]: int(fields[_STEAL]) for fields in lines if fields[0] in usable}
    except (AttributeError, OSError, ValueError, IndexError):  # another system, or an odd file
        return {}

"""What the cores that this process may use have done so far, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")


def core_ticks(stat: Path = STAT) -> dict[str, list[int]]:
    """Ticks that each core was in each state, in the order of `man 5 proc_stat`.

    Returns:
        By names of cores, of those that the system tells of; empty where it tells nothing.
    """
    try:
        usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        return {name: [int(ticks) for ticks in states] for name, *states in lines if name in usable}
    except (AttributeError, OSError, ValueError):  # another system, or an odd file
        return {}

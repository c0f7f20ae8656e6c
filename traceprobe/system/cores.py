"""How much this process can do at once."""

from __future__ import annotations

import os
from math import ceil

from traceprobe.system.control_group import cpu_quota


def affinity() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def cores() -> int:
    """Cores that it has the time of: a container may be granted less than those it may run on."""
    quota = cpu_quota()
    return affinity() if quota is None else max(min(affinity(), ceil(quota)), 1)

"""What a program had of the machine's cores, what it wanted of them, and what others used."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceprobe.system.control_group import cpu_quota
from traceprobe.system.core_ticks import core_ticks
from traceprobe.system.cores import cores
from traceprobe.system.process_tree import PARENT, ran_ticks, stat_fields

_PROC = Path("/proc")
_STATES, _IDLE = 8, (3, 4)
"""Fields of a core: ticks in each state; in these it had nothing to do."""


@dataclass(frozen=True)
class CpuReading:
    """Counters at a moment.

    Args:
        at_ns: of `time.perf_counter_ns`.
        threads: ns for which each thread of this process ran, and waited for a core while it could.
        family: ticks for which each process of the program ran.
        busy: ticks for which the cores that this process may use had something to do; None inside a
            container whose time is limited, which does not tell whose cores those are.
    """

    at_ns: int
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)
    family: dict[int, int] = field(default_factory=dict)
    busy: int | None = None


def read_cpu(root: int) -> CpuReading:
    """The counters now; empty where the system has none.

    Args:
        root: the process that this one and all others of the program come from.
    """
    limited = cpu_quota() is not None
    return CpuReading(
        time.perf_counter_ns(), _threads(), _family(root), None if limited else _busy()
    )


def cpu_between(before: CpuReading, after: CpuReading) -> dict[str, Any]:
    """Fields of `traceprobe.model.sidecar.BlockCpu`; empty where nothing is known.

    To be called in the thread of the loop.
    """
    loop, elapsed_ns = threading.get_native_id(), after.at_ns - before.at_ns
    if loop not in before.threads or loop not in after.threads or elapsed_ns <= 0:
        return {}
    both = before.threads.keys() & after.threads.keys()
    ran, waited = (
        sum(after.threads[each][n] - before.threads[each][n] for each in both) / elapsed_ns
        for n in (0, 1)
    )
    loop_waited = (after.threads[loop][1] - before.threads[loop][1]) / elapsed_ns
    facts = {"ran": ran, "waited": waited, "loop_waited": loop_waited}
    others = _others(before, after, elapsed_ns)
    if others is not None:
        facts["others"] = others
    return {**{name: round(max(v, 0.0), 4) for name, v in facts.items()}, "cores": cores()}


def _others(before: CpuReading, after: CpuReading, elapsed_ns: int) -> float | None:
    """Cores that other programs used."""
    if before.busy is None or after.busy is None:
        return None
    own = sum(ticks - before.family.get(pid, 0) for pid, ticks in after.family.items())
    return (after.busy - before.busy - own) * 1e9 / os.sysconf("SC_CLK_TCK") / elapsed_ns


def _threads() -> dict[int, tuple[int, int]]:
    found = {}
    for thread in _entries(_PROC / "self" / "task"):
        try:
            ran, waited, *_ = (thread / "schedstat").read_text().split()
            found[int(thread.name)] = int(ran), int(waited)
        except (OSError, ValueError):
            continue
    return found


def _family(root: int) -> dict[int, int]:
    parents, ticks = {}, {}
    for process in _entries(_PROC):
        try:
            pid = int(process.name)
            fields = stat_fields(pid)
            parents[pid], ticks[pid] = int(fields[PARENT]), ran_ticks(fields)
        except (OSError, ValueError, IndexError):
            continue
    family = {root}
    while new := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= new
    return {pid: ticks[pid] for pid in family & ticks.keys()}


def _busy() -> int | None:
    found = core_ticks()
    busy = (
        sum(ticks for n, ticks in enumerate(states[:_STATES]) if n not in _IDLE)
        for states in found.values()
    )
    return sum(busy) if found and len(found) == len(os.sched_getaffinity(0)) else None


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

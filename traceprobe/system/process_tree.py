"""Which process comes from which, and how long each ran, by /proc."""

from __future__ import annotations

from pathlib import Path

PARENT = 1
"""Who started a process, among its `stat_fields`."""
_USER, _SYSTEM = 11, 12
_DEEPEST = 64


def stat_fields(pid: int) -> list[str]:
    """What the system says of a process behind its name, which may hold anything.

    Raises:
        OSError: there is none, or no /proc.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def ran_ticks(fields: list[str]) -> int:
    """Ticks that a process ran, for itself and in the system; of its `stat_fields`."""
    return int(fields[_USER]) + int(fields[_SYSTEM])


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process is another or was started below it; not so where nobody knows it."""
    for _ in range(_DEEPEST):
        if pid == ancestor:
            return True
        try:
            pid = int(stat_fields(pid)[PARENT])
        except (OSError, ValueError, IndexError):
            return False
        if pid <= 1:
            return pid == ancestor
    return False

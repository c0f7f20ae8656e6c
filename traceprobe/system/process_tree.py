"""Which process comes from which, by /proc."""

from __future__ import annotations

from pathlib import Path

_DEEPEST = 64


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process is another or was started below it; not so where nobody knows it."""
    for _ in range(_DEEPEST):
        if pid == ancestor:
            return True
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pid = int(fields[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid <= 1:
            return pid == ancestor
    return False

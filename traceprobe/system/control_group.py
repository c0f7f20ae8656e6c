"""What the control groups of this process, of version 1 or 2, leave it of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def memory_limit() -> int | None:
    """Bytes of memory; None without a limit."""
    limits = map(_number, _values("memory.max", "memory", "memory.limit_in_bytes"))
    return min((limit for limit in limits if limit is not None), default=None)


def cpu_quota() -> float | None:
    """Cores of time; None without a limit."""
    granted = []
    for value in _values("cpu.max", "cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"):
        quota, _, period = value.partition(" ")
        time, length = _number(quota), _number(period)
        if time is not None and time > 0 and length:
            granted.append(time / length)
    return min(granted, default=None)


def _values(unified: str, controller: str, *old: str) -> Iterator[str]:
    """What files say of the group of this process and of those around it.

    Args:
        unified: a file of version 2.
        old: files of version 1, in the folder of the controller; their words come in a row.
    """
    root = Path("/sys/fs/cgroup")
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        number, controllers, place = line.split(":", 2)
        if number == "0":
            folder, names = root, [unified]
        elif controller in controllers.split(","):
            folder, names = root / controller, list(old)
        else:
            continue
        # Inside a container the named group may not be visible: then the root is the own one.
        parts = Path(place).parts[1:]
        for depth in range(len(parts), -1, -1):
            texts = [_read(folder.joinpath(*parts[:depth], name)) for name in names]
            yield " ".join(text.strip() for text in texts if text is not None)


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None

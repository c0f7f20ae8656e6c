"""Collectives of gloo that are under way when a profile ends."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_THREADS = Path("/proc/self/task")
_NAME = "pt_gloo_runloop"
"""PyTorch's name for the threads of a gloo process group that carry its collectives out."""
_TIMEOUT = 4
"""Place of a futex call's timeout in the kernel's line about it; the call's number is the first."""
LIMIT_S = 2.0
_PAUSE_S = 0.0005


def wait_for_gloo(limit_s: float = LIMIT_S) -> bool:
    """Wait until no collective of gloo is under way, or for so long.

    A collective that a profile has seen begin notes its end in that profile, in a thread of gloo's
    and after whoever waits for its result goes on. A profile that has ended meanwhile has freed the
    place: the program crashes then or later (PyTorch 2.13: some of a thousand profiles that end
    under a collective).

    Returns:
        Whether all of gloo's threads wait for work. Where the system does not tell (all but Linux)
        nothing is waited for, and this is true.
    """
    threads = _threads()
    if not threads:
        return True
    until = time.monotonic() + limit_s
    for _ in range(2):  # a thread also waits for a lock, for moments, where it notes an end
        while not all(map(_waits_for_work, threads)):
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_S)
        time.sleep(_PAUSE_S)
    return True


def _threads() -> list[Path]:
    found = []
    with suppress(OSError):
        for thread in _THREADS.iterdir():
            with suppress(OSError):
                if (thread / "comm").read_text().startswith(_NAME):
                    found.append(thread)
    return found


def _waits_for_work(thread: Path) -> bool:
    """Whether it sleeps without a timeout; it has one while it waits for other ranks."""
    try:
        call = (thread / "syscall").read_text().split()
    except OSError:  # the thread has ended, or the system does not tell
        return True
    return len(call) > _TIMEOUT and int(call[_TIMEOUT], 16) == 0

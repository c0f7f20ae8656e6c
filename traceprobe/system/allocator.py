"""What allocators do with memory that is freed: that of polars, and that of the C library."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

VARIABLE = "_RJEM_MALLOC_CONF"
_BRIEFLY = "dirty_decay_ms:50,muzzy_decay_ms:0"
_ARENAS = "MALLOC_ARENA_MAX"
_M_ARENA_MAX = -8
"""How `mallopt` of glibc calls the same."""


def keep_freed_memory_briefly() -> None:
    """Have it, and those of processes that this one starts, give back what was freed.

    To be called before polars is imported, and never by a process that starts programs of users. By
    default it keeps what is freed for half a second, in which an analysis asks for other sizes:
    that was a tenth of its memory. What the user has told it comes last, and counts.
    """
    given = os.environ.get(VARIABLE, "")
    if not given.startswith(_BRIEFLY):
        os.environ[VARIABLE] = f"{_BRIEFLY},{given}" if given else _BRIEFLY


def share_freed_memory() -> None:
    """Have all threads, here and in processes that this one starts, use what any of them freed.

    To be called before there are threads, and never by a process that starts programs of users. By
    default glibc keeps for a thread what was freed of its memory: columns are computed by one and
    dropped by another, and that was a seventh of the memory of an analysis. What the user has set
    counts; other C libraries do not know of it.
    """
    if _ARENAS in os.environ:
        return
    os.environ[_ARENAS] = "1"
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

"""What the allocator of polars does with memory that is freed."""

from __future__ import annotations

import os

VARIABLE = "_RJEM_MALLOC_CONF"
_BRIEFLY = "dirty_decay_ms:50,muzzy_decay_ms:0"


def keep_freed_memory_briefly() -> None:
    """Have it, and those of processes that this one starts, give back what was freed.

    To be called before polars is imported, and never by a process that starts programs of users. By
    default it keeps what is freed for half a second, in which an analysis asks for other sizes:
    that was a tenth of its memory. What the user has told it comes last, and counts.
    """
    given = os.environ.get(VARIABLE, "")
    if not given.startswith(_BRIEFLY):
        os.environ[VARIABLE] = f"{_BRIEFLY},{given}" if given else _BRIEFLY

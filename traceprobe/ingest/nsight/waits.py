"""Long waits of host threads in the operating system, of exports that have its calls."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from traceprobe.ingest.joins import keep_rows
from traceprobe.ingest.nsight.ids import per_text, process_key, tid
from traceprobe.ingest.nsight.tables import TIMES, Database
from traceprobe.model.accounting import LONG_NS
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.events import HOST_WORK

_TABLE = "OSRT_API"
_WAITS = re.compile(
    r"^(p?poll|p?select|epoll_p?wait|sem_(timed|clock)?wait|pthread_cond_(timed|clock)?wait"
    r"|read|pread(64)?|recv(from|msg)?|futex)$"
)
"""For another process or a file: a queue of workers is a pipe that is polled or a semaphore."""


def host_waits(db: Database) -> dict[str, Any]:
    """Columns of HOST_WORK: when each thread waits for 1 ms or longer."""
    wanted = {**TIMES, "globalTid": UNKNOWN, "nameId": UNKNOWN}
    rows = None
    if {"start", "end"} <= db.columns.get(_TABLE, set()):
        rows = db.integers(_TABLE, wanted, f"end - start >= {LONG_NS}")
    if rows is None:
        return {c: np.empty(0, dtype=np.int64) for c in HOST_WORK}
    (waiting,) = per_text(db, rows["nameId"], lambda text: bool(_WAITS.match(text)))
    columns = {
        "pid": process_key(rows["globalTid"]) & 0xFFFFFF,
        "thread": tid(rows["globalTid"]),
        "t0": rows["start"],
        "t1": rows["end"],
    }
    return keep_rows(columns, waiting == 1)

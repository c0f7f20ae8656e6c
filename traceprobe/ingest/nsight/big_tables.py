"""The tables of an export that have the most rows, and what is read of each of them.

Threads read these while the process imports what makes a trace of them, so nothing is imported here
that takes its time.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceprobe.ingest.nsight.tables import (
    EVENT,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    SYNCHRONIZATION,
    TIMES,
    Database,
)
from traceprobe.model.codes import UNKNOWN

GRID = ("gridX", "gridY", "gridZ")
_OP = {**TIMES, "deviceId": 0, "streamId": 0, "correlationId": UNKNOWN, "globalPid": UNKNOWN}
_NAMES = {"demangledName": UNKNOWN, "shortName": UNKNOWN, "graphNodeId": 0}
_IDS = dict.fromkeys(
    ("correlationId", "globalPid", "deviceId", "streamId", "eventId", "eventSyncId"), UNKNOWN
)
COLUMNS: Mapping[str, Mapping[str, int]] = {
    KERNEL: {**_OP, **_NAMES, **dict.fromkeys(GRID, UNKNOWN)},
    MEMCPY: {**_OP, "bytes": UNKNOWN, "copyKind": 0, "srcKind": 2, "dstKind": 2},
    MEMSET: {**_OP, "bytes": UNKNOWN},
    GRAPH: {**_OP, "graphId": UNKNOWN},
    RUNTIME: TIMES | dict.fromkeys(("globalTid", "correlationId", "nameId"), UNKNOWN),
    SYNCHRONIZATION: TIMES | _IDS,
    EVENT: _IDS,
}
"""Column to what stands for NULL, of GPU ops, of API calls and of what is noted of events."""


def begin_reading(db: Database) -> None:
    """Let them be read, in the order in which they are needed."""
    for table, wanted in COLUMNS.items():
        db.begin(table, wanted)

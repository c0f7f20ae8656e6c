"""NVTX ranges and marks, and the profiler's own rows, of an Nsight export."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from traceprobe.ingest.classify import is_profiler
from traceprobe.ingest.lookup import concatenate
from traceprobe.ingest.nsight_tables import MISSING, Database, Names, process, strings, tid
from traceprobe.model import HOST_RANGES, UNKNOWN, Quality, Source

# Event types: ranges pushed and popped on one thread, ranges that start and end anywhere, marks;
# the second number of each pair is the nvtxt import of the same.
_PUSH_POP, _START_END, _MARK = (59, 70), (60, 71), 34
_OPEN = np.iinfo(np.int64).max
_LIBRARY = re.compile(
    r"^(nccl|\[DALI\]|cub::|thrust::|cudnn|cublas|aten::|autograd::)", re.IGNORECASE
)


def read(db: Database, names: Names, last: int, quality: Quality) -> dict[str, Any]:
    """Columns of HOST_RANGES.

    Args:
        last: end of the capture, ns; open ranges end there.
    """
    parts = [_nvtx(db, table, names, last, quality) for table in ("NVTX_EVENTS", "NVTXT_EVENTS")]
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        wanted = {"start": MISSING, "end": MISSING, "globalTid": UNKNOWN, "nameId": UNKNOWN}
        if rows := db.integers(table, wanted):
            name, own = strings(db, names, rows["nameId"], is_profiler)
            keep = own == 1
            parts.append(
                {
                    "pid": process(rows["globalTid"])[keep],
                    "thread": tid(rows["globalTid"])[keep],
                    "t0": rows["start"][keep],
                    "t1": rows["end"][keep],
                    "name": name[keep],
                    "source": np.full(int(keep.sum()), Source.PROFILER),
                }
            )
    return concatenate([part for part in parts if len(part["t0"])] or parts[:1])


def _nvtx(db: Database, table: str, names: Names, last: int, quality: Quality) -> dict[str, Any]:
    """NVTX ranges and marks; a range without an end is open and runs to the capture's end."""
    wanted = {"start": MISSING, "end": int(_OPEN), "eventType": 0, "globalTid": UNKNOWN}
    types = ", ".join(map(str, (*_PUSH_POP, *_START_END, _MARK)))
    chosen = f"eventType IN ({types}) AND typeof(start) IN ('integer', 'real')"
    present = db.columns.get(table, set())
    rows = db.integers(table, wanted, chosen) if "eventType" in present else None
    if rows is None:
        return {c: np.empty(0, dtype=np.int64) for c in HOST_RANGES}
    codes, texts = db.texts(table, chosen)
    index = np.array([names(t) for t in texts], dtype=np.int32)
    library = np.array([bool(_LIBRARY.search(t)) for t in texts], dtype=np.int8)
    mark = rows["eventType"] == _MARK
    is_open = (rows["end"] == _OPEN) & ~mark
    if is_open.any():
        quality.warn(
            "open-ranges",
            f"{int(is_open.sum())} NVTX ranges never closed; they are taken to run to the end "
            "of the capture.",
        )
    closed = np.where(is_open, max(last, int(rows["start"].max())), rows["end"])
    return {
        "pid": process(rows["globalTid"]),
        "thread": tid(rows["globalTid"]),
        "t0": rows["start"],
        "t1": np.where(mark, rows["start"], np.maximum(closed, rows["start"])),
        "name": index[codes],
        "source": np.where(mark, int(Source.MARK), library[codes]),
    }

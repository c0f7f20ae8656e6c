"""NVTX ranges and marks, operators among them, and the profiler's own rows, of an export."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from traceprobe.ingest.event_kinds import overhead_source
from traceprobe.ingest.joins import Table, concatenate_tables, empty_table, keep_rows
from traceprobe.ingest.nsight.ids import NameTable, per_text, process_key, tid
from traceprobe.ingest.nsight.operators import NVTX_OPERATORS, with_forward_operators
from traceprobe.ingest.nsight.tables import MISSING, TIMES, Database
from traceprobe.ingest.untrusted_values import FARTHEST_NS
from traceprobe.model.codes import UNKNOWN, Bools, Source
from traceprobe.model.events import HOST_RANGES
from traceprobe.model.quality import Quality

# Event types: ranges pushed and popped on one thread, ranges that start and end anywhere, marks;
# the second number of each pair is the nvtxt import of the same.
_PUSH_POP, _START_END, _MARK = (59, 70), (60, 71), 34
_OPEN = np.iinfo(np.int64).max
_LIBRARY = re.compile(
    r"^(nccl|\[DALI\]|cub::|thrust::|cudnn|cublas|aten::|autograd::|torch\.compile )", re.IGNORECASE
)

_OPERATOR = re.compile(r"^(?:(?:aten|autograd)::|\w+Backward\d*$)")


def host_ranges(
    db: Database, names: NameTable, last: int, quality: Quality
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of HOST_RANGES, and those of HOST_OPERATORS.

    Args:
        last: end of the capture, ns; open ranges end there.
    """
    found = [_nvtx(db, table, names, last, quality) for table in ("NVTX_EVENTS", "NVTXT_EVENTS")]
    operators = concatenate_tables([of_autograd for _, of_autograd in found])
    parts = [ranges for ranges, _ in found]
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        if rows := db.integers(table, {**TIMES, "globalTid": UNKNOWN, "nameId": UNKNOWN}):
            name, source = per_text(db, rows["nameId"], names, overhead_source)
            columns = {
                "pid": process_key(rows["globalTid"]),
                "thread": tid(rows["globalTid"]),
                "t0": rows["start"],
                "t1": rows["end"],
                "name": name,
                "source": source,
            }
            parts.append(keep_rows(columns, source != UNKNOWN))
    ranges = concatenate_tables([part for part in parts if len(part["t0"])] or parts[:1])
    return ranges, with_forward_operators(operators, list(names.index))


def _nvtx(
    db: Database, table: str, names: NameTable, last: int, quality: Quality
) -> tuple[dict[str, Any], dict[str, Any]]:
    """NVTX ranges and marks, and the operators among them, which have a `sequence`.

    A range without an end is open and runs to the capture's end.
    """
    wanted = {"start": MISSING, "end": int(_OPEN), "eventType": 0, "globalTid": UNKNOWN}
    types = ", ".join(map(str, (*_PUSH_POP, *_START_END, _MARK)))
    none = empty_table(*HOST_RANGES), empty_table(*NVTX_OPERATORS)
    if "eventType" not in db.columns.get(table, set()):
        return none
    rows, texts = db.named(table, wanted, f"eventType IN ({types})", _outermost)
    if rows is None or not len(rows["start"]):
        return none
    operator = _operators(rows, texts)
    index = np.array([names(t) for t in texts], dtype=np.int32)
    library = np.array([bool(_LIBRARY.search(t)) for t in texts], dtype=np.int8)
    mark = rows["eventType"] == _MARK
    is_open = (rows["end"] > FARTHEST_NS) & ~mark
    if is_open.any():
        quality.warn(
            "open-ranges",
            f"{int(is_open.sum())} NVTX ranges never closed; they are taken to run to the end "
            "of the capture.",
        )
    closed = np.where(is_open, max(last, int(rows["start"].max())), rows["end"])
    columns = {
        "pid": process_key(rows["globalTid"]),
        "thread": tid(rows["globalTid"]),
        "t0": rows["start"],
        "t1": np.where(mark, rows["start"], np.maximum(closed, rows["start"])),
        "name": index[rows["text"]],
    }
    source = np.where(mark, int(Source.MARK), library[rows["text"]])
    return (
        keep_rows({**columns, "source": source}, ~operator),
        keep_rows({**columns, "sequence": rows["sequence"]}, operator),
    )


def _operators(page: Table, texts: list[str]) -> Bools:
    """Which rows are operators: by their names, or by the sequence number that autograd gave."""
    pushed = np.isin(page["eventType"], _PUSH_POP)
    found: Bools = _named(page, texts) | pushed & (page["sequence"] != UNKNOWN)
    return found


def _named(page: Table, texts: list[str]) -> Bools:
    """Those of PyTorch itself, by their names."""
    named = np.array([bool(_OPERATOR.match(text)) for text in texts], dtype=bool)
    found: Bools = named[page["text"]] & np.isin(page["eventType"], _PUSH_POP)
    return found


def _outermost(page: Table, texts: list[str]) -> Bools:
    """All rows but operators inside of operators: they say nothing that the outer one does not.

    With autograd's own NVTX these are most rows of an export.
    """
    keep = np.ones(len(page["text"]), dtype=bool)
    rows = np.flatnonzero(_named(page, texts))
    for thread in np.unique(page["globalTid"][rows]):
        of_thread = rows[page["globalTid"][rows] == thread]
        of_thread = of_thread[np.lexsort((-page["end"][of_thread], page["start"][of_thread]))]
        reach = np.maximum.accumulate(page["end"][of_thread])
        keep[of_thread[1:][page["end"][of_thread[1:]] <= reach[:-1]]] = False
    return keep

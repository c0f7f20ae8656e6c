"""The rows of `AuditRows` from an Nsight Systems export."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from traceprobe.ingest.audit_rows import AuditRows
from traceprobe.ingest.detect_format import DetectedFormat
from traceprobe.ingest.event_kinds import api_name
from traceprobe.ingest.joins import Table, empty_table, find_rows, take_rows
from traceprobe.ingest.limits import DEFAULT_LIMITS
from traceprobe.ingest.nsight.facts import diagnostics
from traceprobe.ingest.nsight.ids import per_text, process_key
from traceprobe.ingest.nsight.open_export import open_export
from traceprobe.ingest.nsight.tables import MISSING, RUNTIME, SYNCHRONIZATION, Database
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.quality import Quality

_NODE = re.compile(r"^autograd::engine::evaluate_function: (.*?), seq = (\d{1,18})\b")
_TYPES = (
    (re.compile(r"^cu(da)?EventSynchronize$"), 1),
    (re.compile(r"^cu(da)?StreamWaitEvent$"), 2),
    (re.compile(r"^cu(da)?StreamSynchronize$"), 3),
    (re.compile(r"^(cudaDevice|cuCtx)Synchronize$"), 4),
)
"""The `syncType` that CUPTI documents for each call."""
_SAME_PROCESS = 1 << 32
"""Beyond every correlation id, which have 32 bits: a process and an id make one number."""


def read_nsight_audit(path: Path, detected: DetectedFormat) -> AuditRows:
    """The rows of one export."""
    with open_export(path, detected, DEFAULT_LIMITS, Quality()) as db:
        mislabelled, labelled = _sync_types(db)
        nodes, names = _nodes(db)
        return AuditRows(
            backward=nodes,
            names=names,
            diagnostics=diagnostics(db),
            mislabelled=mislabelled,
            labelled=labelled,
        )


def _sync_types(db: Database) -> tuple[int, int]:
    """Rows whose type is not that of the call with their correlation, and all with a call."""
    wanted = {"start": MISSING, "correlationId": UNKNOWN, "globalPid": UNKNOWN, "syncType": UNKNOWN}
    rows = db.integers(SYNCHRONIZATION, wanted)
    asked = {"start": MISSING, "correlationId": UNKNOWN, "globalTid": UNKNOWN, "nameId": UNKNOWN}
    calls = db.integers(RUNTIME, asked)
    if rows is None or calls is None:
        return 0, 0
    (right,) = per_text(db, calls["nameId"], lambda text: _type(api_name(text)))
    keys = process_key(calls["globalTid"]) * _SAME_PROCESS + calls["correlationId"]
    sought = process_key(rows["globalPid"]) * _SAME_PROCESS + rows["correlationId"]
    meant = take_rows(right, find_rows(sought, keys, np.flatnonzero(right != UNKNOWN)))
    known = (meant != UNKNOWN) & (rows["syncType"] != UNKNOWN)
    return int((known & (meant != rows["syncType"])).sum()), int(known.sum())


def _type(api: str) -> int:
    return next((code for pattern, code in _TYPES if pattern.search(api)), UNKNOWN)


def _nodes(db: Database) -> tuple[Table, tuple[str, ...]]:
    """What `emit_nvtx` notes of the backward pass: one range a node."""
    if "eventType" not in db.columns.get("NVTX_EVENTS", set()):
        return empty_table("name", "thread", "sequence"), ()
    wanted = {"start": MISSING, "globalTid": UNKNOWN}
    rows, texts = db.named("NVTX_EVENTS", wanted, "eventType IN (59, 70)", whole=True)
    if rows is None:
        return empty_table("name", "thread", "sequence"), ()
    matches = [_NODE.match(text) for text in texts]
    names: dict[str, int] = {}
    name = np.array([names.setdefault(m[1], len(names)) if m else UNKNOWN for m in matches])
    sequence = np.array([int(m[2]) if m else UNKNOWN for m in matches], dtype=np.int64)
    keep = name[rows["text"]] != UNKNOWN
    return {
        "name": name[rows["text"]][keep],
        "thread": process_key(rows["globalTid"])[keep],
        "sequence": sequence[rows["text"]][keep],
    }, tuple(names)

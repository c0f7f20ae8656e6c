"""What an export notes of events and waits: synchronisations, and with event trace the records.

A wait and its record share process, event and `eventSyncId`, which numbers the records of a
process. Exports before 3.20 have no such number.
"""

from __future__ import annotations

import numpy as np

from traceprobe.ingest.joins import Table, concatenate_tables, empty_table
from traceprobe.ingest.nsight.big_tables import COLUMNS
from traceprobe.ingest.nsight.ids import process_key
from traceprobe.ingest.nsight.tables import EVENT, MISSING, SYNCHRONIZATION, Database
from traceprobe.ingest.stream_events import NOTES, identity
from traceprobe.model.codes import UNKNOWN, Int64s, StreamEvent


def sync_notes(db: Database, pids: Int64s) -> Table:
    """The notes of `stream_events`.

    Args:
        pids: keys of the processes that have calls; an export without process ids has one.
    """
    syncs = db.integers(SYNCHRONIZATION, COLUMNS[SYNCHRONIZATION])
    records = db.integers(EVENT, COLUMNS[EVENT])
    parts = [empty_table("pid", "kind", "t0", "t1", "correlation", *NOTES)]
    if syncs is not None:
        noted = _noted(syncs)
        both = (noted["stream"] != UNKNOWN) & (noted["event"] != UNKNOWN)
        kind = np.where(both, int(StreamEvent.WAIT), int(StreamEvent.HOST_WAIT))
        parts.append({**noted, "kind": kind, "t0": syncs["start"], "t1": syncs["end"]})
    if records is not None:
        count = len(records["eventId"])
        kind = np.full(count, int(StreamEvent.RECORD), dtype=np.int64)
        unknown = np.full(count, MISSING, dtype=np.int64)
        parts.append({**_noted(records), "kind": kind, "t0": unknown, "t1": unknown})
    notes = concatenate_tables(parts)
    if len(pids) == 1 and set(np.unique(notes["pid"])) <= {0}:
        notes["pid"] = np.full(len(notes["pid"]), pids[0])
    return notes


def _noted(rows: Table) -> Table:
    unknown = np.full(len(rows["eventId"]), UNKNOWN, dtype=np.int64)
    return {
        "pid": process_key(rows["globalPid"]),
        "device": rows["deviceId"],
        "stream": identity(rows["streamId"]),
        "event": identity(rows["eventId"]),
        "serial": identity(rows["eventSyncId"]),
        "correlation": rows["correlationId"],
        "record": unknown,
        "record_stream": unknown,
    }

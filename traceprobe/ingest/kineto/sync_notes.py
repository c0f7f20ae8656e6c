"""What Kineto notes of events and waits: rows `cuda_sync` and, since the end of 2025, `cuda_event`.

Their pid is that of the GPU, but they are not its work: a `cuda_sync` row lasts as long as the call
that waits, on the clock of the host. Up to CUDA 12.8 it names the record that it is for, and that
record's stream; later ones have -1 there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from traceprobe.ingest.joins import Table, empty_table, find_rows, take_rows
from traceprobe.ingest.kineto.event import Args, Event
from traceprobe.ingest.kineto.values import integers
from traceprobe.ingest.stream_events import NOTES, identity
from traceprobe.ingest.untrusted_values import bounded_text
from traceprobe.model.codes import UNKNOWN, Int64s, StreamEvent

RECORDS = ("cuda_event",)
SYNC_NOTES = ("cuda_sync", *RECORDS)
_OF_WAIT = {
    "event": attrgetter("wait_event"),
    "record": attrgetter("wait_record"),
    "record_stream": attrgetter("wait_stream"),
}
_OF_RECORD = {"event": attrgetter("event_id")}
_OF_BOTH = {c: attrgetter(c) for c in ("stream", "device", "correlation")}


def sync_notes(events: Sequence[Event], args: Sequence[Args], pids: Int64s) -> Table:
    """Columns of the rows but their times."""
    record = np.array([event.cat in RECORDS for event in events], dtype=bool)
    unknown = np.full(len(events), UNKNOWN, dtype=np.int64)
    noted = {c: integers(args, field) for c, field in _OF_BOTH.items()}
    waits = {c: identity(integers(args, field)) for c, field in _OF_WAIT.items()}
    own = {c: identity(integers(args, field)) for c, field in _OF_RECORD.items()}
    kinds = [_kind(event, said.sync_kind) for event, said in zip(events, args, strict=True)]
    return {
        "kind": np.array(kinds, dtype=np.int64),
        "correlation": noted["correlation"],
        "stream": identity(noted["stream"]),
        "device": np.where(noted["device"] < 0, pids, noted["device"]),
        "serial": unknown,
        **{c: np.where(record, own.get(c, unknown), waits[c]) for c in waits},
    }


def _kind(event: Event, said: Any) -> int:
    if event.cat in RECORDS:
        return int(StreamEvent.RECORD)
    waits = "wait event" in bounded_text(said or event.name).lower()
    return int(StreamEvent.WAIT if waits else StreamEvent.HOST_WAIT)


def of_processes(notes: Table | None, calls: Mapping[str, Any], pids: Sequence[int]) -> Table:
    """The notes with the process of each: that whose call with the same number is nearest."""
    if notes is None:
        return empty_table("pid", "kind", "t0", "t1", "correlation", *NOTES)
    found = np.full(len(notes["t0"]), pids[0], dtype=np.int64)
    if len(pids) > 1:
        nearest = np.full(len(found), np.iinfo(np.int64).max)
        for pid in pids:
            call = find_rows(
                notes["correlation"], calls["correlation"], np.flatnonzero(calls["pid"] == pid)
            )
            away = np.abs(take_rows(calls["t0"], call) - notes["t0"])
            nearer = (call != UNKNOWN) & (away < nearest)
            found[nearer], nearest[nearer] = pid, away[nearer]
    return {**notes, "pid": found}

"""Calls that record events and wait for them, with what the profiler notes of each.

The call says what it does, and when. What profilers note beside it says the rest: on which stream,
which event, and of some waits which record of the event they are for. Where that is missing, it is
the event's last record before the wait, which is what CUDA defines. Codes of the notes are not
believed: Nsight Systems wrote wrong ones for years, and asking whether an event is ready is noted
like waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from traceprobe.ingest.event_kinds import ASKS
from traceprobe.ingest.joins import (
    Table,
    concatenate_tables,
    find_rows_of_processes,
    keep_rows,
    take_rows,
)
from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Ints, StreamEvent

NOTES = ("device", "stream", "event", "serial", "record", "record_stream")
"""What a profiler notes of such a call beside `pid`, `kind`, `t0`, `t1` and `correlation`. `serial`
numbers the records of a process; `record` is the correlation of that which a wait is for, and
`record_stream` the stream of it. UNKNOWN where not noted."""
_INVALID = 0xFFFFFFFF
"""What CUPTI writes where there is no stream, or no event."""
_FEWEST = 3
"""Waits of a process to count its records by."""
_TIME = ("t0", "correlation")
"""What orders the calls of a process: their start and, where that is in whole µs, their number."""


def identity(column: Ints) -> Int64s:
    """Ids of streams and events; UNKNOWN for what stands for none."""
    ids = column.astype(np.int64)
    return np.where((ids < 0) | (ids == _INVALID), UNKNOWN, ids)


def stream_events(calls: Mapping[str, Any], does: Ints, notes: Table) -> dict[str, Any]:
    """Columns of STREAM_EVENTS, in no order.

    Args:
        calls: columns of HOST_CALLS.
        does: `stream_event` of each call.
        notes: `NOTES` and the columns beside them, the ids by `identity`. A record without its call
            is left out: its own time is that of the GPU. A wait without its call has no thread.
    """
    call = _same_process(
        *(notes, "correlation", calls), (np.flatnonzero(chosen) for chosen in (does >= 0, does < 0))
    )
    done = np.where(call == UNKNOWN, UNKNOWN, take_rows(does, call))
    record = int(StreamEvent.RECORD)
    fits = (notes["kind"] == record) == (done == record)
    notes, call, done = keep_rows(notes, fits), call[fits], done[fits]
    known = {
        **{c: notes[c] for c in ("pid", "correlation", *NOTES)},
        "thread": take_rows(calls["thread"], call),
        "kind": np.where(done == UNKNOWN, notes["kind"], done),
        **{c: np.where(done >= 0, take_rows(calls[c], call), notes[c]) for c in ("t0", "t1")},
    }
    plain = does >= 0
    plain[call[call != UNKNOWN]] = False
    bare = {c: np.asarray(calls[c])[plain] for c in ("pid", "thread", "t0", "t1", "correlation")}
    bare |= {"kind": does[plain]}
    bare |= {c: np.full(len(bare["t0"]), UNKNOWN, dtype=np.int64) for c in NOTES}
    return _resolved(concatenate_tables([known, bare]))


def _same_process(
    rows: Mapping[str, Any], column: str, others: Mapping[str, Any], tiers: Iterable[Int64s]
) -> Int64s:
    """Of the others in `tiers`, the first of the process whose correlation a column holds."""
    return find_rows_of_processes(
        rows[column], rows["pid"], others["correlation"], others["pid"], tiers
    )


def _resolved(events: Table) -> dict[str, Any]:
    """The events, each wait with its record, and each record with what waits say of it."""
    kind = events["kind"]
    records = kind == StreamEvent.RECORD
    order = np.flatnonzero(records)
    events["record"] = np.where(records, UNKNOWN, events["record"])
    row = _same_process(events, "record", events, [order])
    future = (row != UNKNOWN) & ~_before(events, row)
    for column in ("record", "record_stream"):
        events[column] = np.where(future, UNKNOWN, events[column])
    row = np.where(future, UNKNOWN, row)
    _count_records(events, records)
    last = _last_record(events, records)
    derived = ~records & (events["record"] == UNKNOWN) & (last != UNKNOWN)
    row = np.where(derived, last, row)
    events["record"] = np.where(derived, take_rows(events["correlation"], last), events["record"])
    for column, said in (("stream", "record_stream"), ("event", "event"), ("device", "device")):
        tells = np.flatnonzero((row != UNKNOWN) & (events[said] != UNKNOWN))
        target = row[tells]
        silent = events[column][target] == UNKNOWN
        events[column] = events[column].astype(np.int64)
        events[column][target[silent]] = events[said][tells[silent]]
    told = np.where(row == UNKNOWN, events["record_stream"], take_rows(events["stream"], row))
    host = (kind == StreamEvent.HOST_WAIT) & (events["stream"] == UNKNOWN)
    events["stream"] = np.where(host, told, events["stream"])
    asks = kind == ASKS  # which says something of the record as well
    return {c: v[~asks] for c, v in events.items() if c not in ("serial", "record_stream")}


def _count_records(events: Table, records: Bools) -> None:
    """Number the records of processes of which only waits have numbers, and give them their event.

    Nsight Systems counts the records of a process in the order of their calls, so all that is
    missing is the number of the first. No wait is for a record after it, and many are for the very
    last: the least first number that allows it is right where such waits are all over the capture.
    Where a call is missing, all waits on one side of it seem to be for older records; then nothing
    is said.
    """
    waits = (events["kind"] == StreamEvent.WAIT) & (events["serial"] != UNKNOWN)
    for column in ("serial", "event"):
        events[column] = events[column].astype(np.int64)
    number = events["correlation"]
    for pid in np.intersect1d(events["pid"][waits], events["pid"][records]):
        of_process = events["pid"] == pid
        own, wait = np.flatnonzero(records & of_process), np.flatnonzero(waits & of_process)
        own = own[np.argsort(number[own], kind="stable")]
        if (events["serial"][own] != UNKNOWN).any() or len(wait) < _FEWEST:
            continue
        serial = events["serial"][wait]
        last = np.searchsorted(number[own], number[wait]) - 1
        first = int((serial - last).max())
        place = serial - first
        inside = (place >= 0) & (place < len(own))
        wait, place, last = (column[inside] for column in (wait, place, last))
        at_once = np.flatnonzero((place == last)[np.argsort(number[wait])])
        others = np.diff([-1, *at_once, len(wait)]) - 1
        if max(others[0], others[-1]) > max(others[1:-1], default=0):
            continue
        events["serial"][own] = np.arange(len(own)) + first
        events["event"][own[place]] = events["event"][wait]


def _before(events: Table, row: Int64s) -> Bools:
    """Whether each event comes after the one at its row."""
    (t0, number), (own_t0, own_number) = (
        [take_rows(events[c], row) for c in _TIME],
        [events[c] for c in _TIME],
    )
    return np.asarray((t0 < own_t0) | ((t0 == own_t0) & (number < own_number)), dtype=np.bool_)


def _last_record(events: Table, records: Bools) -> Int64s:
    """Row of the last record of the same event before each, or UNKNOWN.

    Events are numbered in each device of a process, unless their records are numbered as well.
    """
    device = np.where(events["serial"] == UNKNOWN, events["device"], 0)
    keys = (events["pid"], device, events["event"], events["serial"])
    order = np.lexsort((~records, *(events[c] for c in reversed(_TIME)), *reversed(keys)))
    order = order[events["event"][order] != UNKNOWN]
    found = np.full(len(records), UNKNOWN, dtype=np.int64)
    if not len(order):
        return found
    changed = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    places = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.concatenate([[True], changed]), places, 0))
    last = np.maximum.accumulate(np.where(records[order], places, UNKNOWN))
    found[order] = np.where(last >= first, order[last], UNKNOWN)
    return found

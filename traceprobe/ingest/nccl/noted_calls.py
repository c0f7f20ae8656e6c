"""What a dump notes of the calls that launch NCCL's kernels: an entry each, or several as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from traceprobe.ingest.collective_metadata import (
    collective_operation,
    group_id,
    item_bytes,
    message_bytes,
)
from traceprobe.ingest.nccl.launches import WHOLE, launches
from traceprobe.ingest.untrusted_values import MOST_BYTES
from traceprobe.model.events import UNKNOWN, Operation
from traceprobe.model.flight_record import Entry, FlightRecord, GroupKey, Tensors

NOTED_CALLS: Mapping[str, Any] = {
    "created_ns": pl.Int64,  # UTC, when the call was noted, which is before its kernel is launched
    "operation": pl.Int64,  # Operation; OTHER of several that differ
    "dtype": pl.String,  # of all tensors, in PyTorch's words; empty where they differ
    "bytes": pl.Int64,  # of the message; UNKNOWN where the dump does not say
    "group": pl.Int64,  # as `group_id` numbers it
    "group_size": pl.Int64,  # ranks in it; UNKNOWN where the dump does not list them
    "sequence": pl.Int64,  # number of the collective, or of the message, in its group
    "several": pl.Boolean,  # whether it may be more than one kernel
}
"""Columns of calls, in the order of issue."""

_MESSAGES = (Operation.SEND_RECV, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)


def noted_calls(record: FlightRecord) -> pl.DataFrame:
    """The calls of a dump that launch kernels of NCCL, as `NOTED_CALLS`.

    Without those of other backends, of groups of one rank and of empty messages, which launch none.
    """
    rows = [
        row
        for entries in launches(record.entries)
        if (row := _row(entries, record.groups)) is not None
    ]
    return pl.DataFrame(rows, schema=dict(NOTED_CALLS), orient="row")


def _row(entries: Sequence[Entry], groups: Mapping[str, GroupKey]) -> tuple[object, ...] | None:
    last = entries[-1]
    parts = [entry for entry in entries if entry.operation != WHOLE]
    listed = groups.get(last.group.name, last.group).ranks
    if last.backend != "nccl" or len(listed) == 1 or last.created_ns < 0:
        return None
    kinds = [_operation(entry) for entry in parts]
    kind = kinds[0] if len({*kinds}) == 1 else Operation.OTHER
    # NCCL counts a batch of messages by what is sent; what only receives, by that.
    sends = [entry for entry in parts if entry.operation != "recv"] or parts
    sizes = [_bytes(entry) for entry in sends]
    known = parts and kind != Operation.OTHER and UNKNOWN not in sizes
    size = min(sum(sizes), MOST_BYTES) if known else UNKNOWN
    if size == 0:
        return None
    dtypes = {name for entry in parts for name in (*entry.inputs.dtypes, *entry.outputs.dtypes)}
    return (
        last.created_ns,
        int(kind),
        dtypes.pop() if len(dtypes) == 1 else "",
        size,
        group_id(last.group.name, str([*listed])) if last.group.name else UNKNOWN,
        len(listed) or UNKNOWN,
        last.sequence,
        len(entries) > 1 or kind in (*_MESSAGES, Operation.OTHER),
    )


def _operation(entry: Entry) -> Operation:
    if entry.point_to_point:
        return Operation.SEND_RECV
    # PyTorch makes a barrier of an all-reduce, and calls it so.
    return collective_operation(entry.operation)


def _bytes(entry: Entry) -> int:
    """Bytes of the message, as `message_bytes` counts them, over tensors of any types."""
    kind = _operation(entry)
    if kind == Operation.SEND_RECV:
        return _of_tensors(entry.inputs if entry.operation == "send" else entry.outputs, kind)
    gathers = kind in (Operation.ALL_GATHER, Operation.GATHER)
    return _of_tensors(entry.outputs if gathers else entry.inputs, kind)


def _of_tensors(tensors: Tensors, kind: Operation) -> int:
    if not tensors.sizes or len(tensors.sizes) != len(tensors.dtypes):
        return UNKNOWN
    total = 0
    for sides, dtype in zip(tensors.sizes, tensors.dtypes, strict=True):
        elements = math.prod(sides) if min(sides, default=1) >= 0 else UNKNOWN
        size = message_bytes(kind, elements, elements, dtype)
        if size == UNKNOWN or item_bytes(dtype) == UNKNOWN:
            return UNKNOWN
        total += size
    return total if total <= MOST_BYTES else UNKNOWN

"""What a dump notes of the calls that launch NCCL's kernels: an entry each, or several as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from traceprobe.ingest.collective_metadata import (
    OF_MESSAGES,
    collective_operation,
    group_id,
    message_bytes,
)
from traceprobe.ingest.nccl.launches import WHOLE, launches
from traceprobe.ingest.untrusted_values import FARTHEST_NS, MOST_BYTES
from traceprobe.model.codes import UNKNOWN, Operation
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


def noted_calls(record: FlightRecord) -> pl.DataFrame:
    """The calls of a dump that launch kernels of NCCL, as `NOTED_CALLS`.

    Without those of other backends, of groups of one rank and of empty messages, which launch none.
    """
    parse = _Calls(record.groups)
    rows = [row for part in launches(record.entries) if (row := parse.row(part)) is not None]
    return pl.DataFrame(rows, schema=dict(NOTED_CALLS), orient="row")


class _Calls:
    """Calls of one dump. What many entries share is looked at once: it may be long."""

    def __init__(self, groups: Mapping[str, GroupKey]) -> None:
        self._groups = groups
        self._numbers: dict[str, int] = {}
        self._sizes: dict[tuple[int, Operation], int] = {}
        self._types: dict[int, frozenset[str]] = {}

    def row(self, entries: Sequence[Entry]) -> tuple[object, ...] | None:
        """The columns of what is launched as one; None for what launches no kernel."""
        last = entries[-1]
        parts = [entry for entry in entries if entry.operation != WHOLE]
        group = self._groups.get(last.group.name, last.group)
        if last.backend != "nccl" or len(group.ranks) == 1:
            return None
        if not 0 <= last.created_ns < FARTHEST_NS:
            return None
        kinds = {_operation(entry) for entry in parts}
        kind = kinds.pop() if len(kinds) == 1 else Operation.OTHER
        size = UNKNOWN if kind == Operation.OTHER else self._message(parts, kind)
        if size == 0:
            return None
        types = frozenset().union(
            *(self._dtypes(t) for entry in parts for t in (entry.inputs, entry.outputs))
        )
        return (
            last.created_ns,
            int(kind),
            next(iter(types)) if len(types) == 1 else "",
            size,
            self._number(group),
            len(group.ranks) or UNKNOWN,
            last.sequence,
            len(entries) > 1 or kind in (*OF_MESSAGES, Operation.OTHER),
        )

    def _message(self, parts: Sequence[Entry], kind: Operation) -> int:
        """Bytes of the message. Of messages to and fro NCCL counts what is sent."""
        counted = [entry for entry in parts if entry.operation != "recv"] or parts
        sizes = [
            self._bytes(entry.outputs if _by_output(entry, kind) else entry.inputs, kind)
            for entry in counted
        ]
        total = sum(sizes)
        return total if UNKNOWN not in sizes and total <= MOST_BYTES else UNKNOWN

    def _bytes(self, tensors: Tensors, kind: Operation) -> int:
        key = (id(tensors), kind)
        if key not in self._sizes:
            self._sizes[key] = _bytes(tensors, kind)
        return self._sizes[key]

    def _dtypes(self, tensors: Tensors) -> frozenset[str]:
        key = id(tensors)
        if key not in self._types:
            self._types[key] = frozenset(tensors.dtypes)
        return self._types[key]

    def _number(self, group: GroupKey) -> int:
        if group.name not in self._numbers:
            number = group_id(group.name, str([*group.ranks])) if group.name else UNKNOWN
            self._numbers[group.name] = number
        return self._numbers[group.name]


def _operation(entry: Entry) -> Operation:
    """What PyTorch calls a barrier is the all-reduce that it makes of it."""
    return Operation.SEND_RECV if entry.point_to_point else collective_operation(entry.operation)


def _by_output(entry: Entry, kind: Operation) -> bool:
    return kind in (Operation.ALL_GATHER, Operation.GATHER) or entry.operation == "recv"


def _bytes(tensors: Tensors, kind: Operation) -> int:
    """Bytes of tensors of any types; UNKNOWN where a type or a length is not known."""
    if not tensors.sizes or len(tensors.sizes) != len(tensors.dtypes):
        return UNKNOWN
    total = 0
    for sides, dtype in zip(tensors.sizes, tensors.dtypes, strict=True):
        elements = math.prod(sides) if min(sides, default=1) >= 0 else UNKNOWN
        size = message_bytes(kind, elements, elements, dtype)
        if size == UNKNOWN:
            return UNKNOWN
        total += size
    return total if total <= MOST_BYTES else UNKNOWN

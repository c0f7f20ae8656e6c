"""The rows of `Audit` from a Kineto trace: a second pass over the events, with other fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from traceprobe.ingest.audit_rows import MESSAGE_FIELDS, SYNC_KINDS, AuditRows, empty_table
from traceprobe.ingest.detect_format import DetectedFormat
from traceprobe.ingest.joins import Table, concatenate_tables
from traceprobe.ingest.kineto.chunks import BlockReader, EventSplitter
from traceprobe.ingest.kineto.columns import base_ns, floats, integers, nanoseconds, times_or_zero
from traceprobe.ingest.kineto.envelope import top_level_properties
from traceprobe.ingest.kineto.event import Number
from traceprobe.ingest.kineto.read import decode_events, garbage_collection_paused
from traceprobe.ingest.untrusted_values import NAME_LENGTH, bounded_text
from traceprobe.model.events import UNKNOWN, Quality

_NODE = "autograd::engine::evaluate_function: "
_NOTED = "record_param_comms"
_LONGEST_MESSAGE = 1_000
"""Characters: the expression tries every place where its first part fits."""
_COUNTS = re.compile(r"Out-of-range = (\d{1,18})\b.*CUPTI stopped early\? = (\d)")


class _Args(
    msgspec.Struct,
    gc=False,
    rename={
        "kind": "cuda_sync_kind",
        "record": "wait_on_cuda_event_record_corr_id",
        "sequence": "Sequence number",
        "thread": "Fwd thread id",
        "collective": MESSAGE_FIELDS[0],
        "elements_in": MESSAGE_FIELDS[2],
        "elements_out": MESSAGE_FIELDS[3],
        "group_size": MESSAGE_FIELDS[4],
    },
):
    kind: Any = None
    record: Number = UNKNOWN
    device: Number = UNKNOWN
    stream: Number = UNKNOWN
    sequence: Number = UNKNOWN
    thread: Number = UNKNOWN
    collective: Any = None
    dtype: Any = None
    elements_in: Any = None
    elements_out: Any = None
    group_size: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: Number = ""
    ts: Number = None
    args: _Args | None = None


_TS, _ARGS = attrgetter("ts"), attrgetter("args")
_FIELDS = {name: attrgetter(name) for name in ("device", "stream", "record", "sequence", "thread")}


def read_kineto_audit(path: Path, detected: DetectedFormat) -> AuditRows:
    """The rows of one trace; events that cannot be read are counted by `load`, not here."""
    reader, split = BlockReader(path, detected.gzipped, lambda done, total: None), EventSplitter()
    syncs: list[Table] = []
    backward: list[Table] = []
    names: dict[str, int] = {}
    collectives = incomplete = 0
    with garbage_collection_paused():
        for events in decode_events(split.chunks(reader.blocks()), _Event, Quality()):
            rows = [e for e in events if e.args is not None and e.ph == "X"]
            waits = [e for e in rows if e.args is not None and e.args.kind in SYNC_KINDS]
            if waits:
                syncs.append(_syncs(waits))
            nodes = [e for e in rows if isinstance(e.name, str) and _NODE in e.name]
            if nodes:
                backward.append(_nodes(nodes, names))
            noted = [e.args for e in rows if e.name == _NOTED and e.args is not None]
            collectives += len(noted)
            incomplete += sum(not _complete(args) for args in noted)
    metadata = top_level_properties(split.head, split.tail, Quality())
    table = concatenate_tables(syncs) if syncs else empty_table("t0", "kind", *tuple(_FIELDS)[:3])
    return AuditRows(
        syncs={**table, "t0": table["t0"] + base_ns(metadata)},
        backward=concatenate_tables(backward)
        if backward
        else empty_table("name", "thread", "sequence"),
        names=tuple(names),
        collectives=collectives,
        incomplete=incomplete,
        **_dropped(metadata),
    )


def _syncs(events: Sequence[_Event]) -> Table:
    args = list(map(_ARGS, events))
    return {
        "t0": nanoseconds(times_or_zero(floats(events, _TS))),
        "kind": np.array([SYNC_KINDS.index(a.kind) for a in args], dtype=np.int64),
        **{name: integers(args, _FIELDS[name]) for name in ("device", "stream", "record")},
    }


def _nodes(events: Sequence[_Event], names: dict[str, int]) -> Table:
    args = list(map(_ARGS, events))
    texts = [bounded_text(event.name, NAME_LENGTH).partition(_NODE)[2] for event in events]
    return {
        "name": np.array([names.setdefault(t, len(names)) for t in texts], dtype=np.int64),
        **{name: integers(args, _FIELDS[name]) for name in ("thread", "sequence")},
    }


def _complete(args: _Args) -> bool:
    noted = (args.collective, args.dtype, args.elements_in, args.elements_out, args.group_size)
    return None not in noted


def _dropped(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Kineto's last words on records that it left out, which only some builds write."""
    messages = metadata.get("INFO")
    for message in messages if isinstance(messages, list) else []:
        found = _COUNTS.search(bounded_text(message, _LONGEST_MESSAGE))
        if found:
            return {"out_of_range": int(found[1]), "stopped_early": found[2] != "0"}
    return {}

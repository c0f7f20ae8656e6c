"""The rows of `AuditRows` from a Kineto trace: a second pass over the events, with other fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from traceprobe.ingest.audit_rows import SYNC_KINDS, AuditRows
from traceprobe.ingest.detect_format import DetectedFormat
from traceprobe.ingest.joins import Table, concatenate_tables, empty_table
from traceprobe.ingest.kineto.chunks import BlockReader, EventSplitter
from traceprobe.ingest.kineto.columns import base_ns
from traceprobe.ingest.kineto.decode import decode_events, garbage_collection_paused
from traceprobe.ingest.kineto.envelope import top_level_properties
from traceprobe.ingest.kineto.event import Number
from traceprobe.ingest.kineto.values import floats, integers, nanoseconds, times_or_zero
from traceprobe.ingest.untrusted_values import NAME_LENGTH, bounded_text
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.quality import Quality

_NODE = "autograd::engine::evaluate_function: "
_NOTED = "record_param_comms"
_LONGEST_MESSAGE = 1_000
"""Characters: the expression tries every place where its first part fits."""
_COUNTS = re.compile(r"Out-of-range = (\d{1,18})\b.*CUPTI stopped early\? = (\d)")


class _Args(msgspec.Struct, gc=False):
    kind: Any = field(default=None, name="cuda_sync_kind")
    record: Number = field(default=UNKNOWN, name="wait_on_cuda_event_record_corr_id")
    device: Number = UNKNOWN
    stream: Number = UNKNOWN
    sequence: Number = field(default=UNKNOWN, name="Sequence number")
    thread: Number = field(default=UNKNOWN, name="Fwd thread id")
    collective: Any = field(default=None, name="Collective name")
    dtype: Any = None
    elements_in: Any = field(default=None, name="In msg nelems")
    elements_out: Any = field(default=None, name="Out msg nelems")
    group_size: Any = field(default=None, name="Group size")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: Number = ""
    ts: Number = None
    args: _Args | None = None


_TS, _ARGS = attrgetter("ts"), attrgetter("args")
_OF_SYNC, _OF_NODE = ("device", "stream", "record"), ("thread", "sequence")


def read_kineto_audit(path: Path, detected: DetectedFormat) -> AuditRows:
    """The rows of one trace; events that cannot be read are counted by `read_kineto`, not here."""
    reader, split = BlockReader(path, detected.gzipped, lambda done, total: None), EventSplitter()
    syncs = [empty_table("t0", "kind", *_OF_SYNC)]
    backward = [empty_table("name", *_OF_NODE)]
    names: dict[str, int] = {}
    collectives = incomplete = 0
    with garbage_collection_paused():
        for events in decode_events(split.chunks(reader.blocks()), _Event, Quality()):
            rows = [e for e in events if e.args is not None and e.ph == "X"]
            waits = [e for e in rows if e.args is not None and e.args.kind in SYNC_KINDS]
            syncs.append(_syncs(waits))
            nodes = [e for e in rows if isinstance(e.name, str) and _NODE in e.name]
            backward.append(_nodes(nodes, names))
            noted = [e.args for e in rows if e.name == _NOTED and e.args is not None]
            collectives += len(noted)
            incomplete += sum(not _complete(args) for args in noted)
    metadata = top_level_properties(split.head, split.tail, Quality())
    table = concatenate_tables(syncs)
    return AuditRows(
        syncs={**table, "t0": table["t0"] + base_ns(metadata)},
        backward=concatenate_tables(backward),
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
        **{name: integers(args, attrgetter(name)) for name in _OF_SYNC},
    }


def _nodes(events: Sequence[_Event], names: dict[str, int]) -> Table:
    args = list(map(_ARGS, events))
    texts = [bounded_text(event.name, NAME_LENGTH).partition(_NODE)[2] for event in events]
    return {
        "name": np.array([names.setdefault(t, len(names)) for t in texts], dtype=np.int64),
        **{name: integers(args, attrgetter(name)) for name in _OF_NODE},
    }


def _complete(args: _Args) -> bool:
    """Whether all is there that PyTorch notes of a collective, which is all or nothing."""
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

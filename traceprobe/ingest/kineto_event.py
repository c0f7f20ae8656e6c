"""The typed view of one Chrome trace event: every field that is read, and no other."""

from __future__ import annotations

import msgspec

Number = int | float | str | None


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "external_id_lower": "external id",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "copy_kind": "copy kind",
        "graph": "graph id",
        "graph_node": "graph node id",
        "in_device": "inDevice",
    },
):
    """Numbers may be strings (ROCm writes `"bytes": "616"`), so every one is a `Number`."""

    correlation: Number = None
    external_id: Number = None
    external_id_lower: Number = None
    stream: Number = None
    device: Number = None
    in_device: Number = None
    bytes: Number = None
    sequence: Number = None
    forward_thread: Number = None
    copy_kind: Number = None
    graph: Number = None
    graph_node: Number = None
    name: Number = None
    labels: Number = None


class Event(msgspec.Struct, gc=False):
    """One element of `traceEvents`."""

    ph: str = ""
    cat: str | None = None
    name: Number = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    id: Number = None
    args: Args | None = None

"""The typed view of one Chrome trace event: every field that is read, and no other."""

from __future__ import annotations

from math import nan
from typing import Any

import msgspec

from traceprobe.model.events import UNKNOWN

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
        "source_kind": "src kind",
        "target_kind": "dst kind",
        "graph": "graph id",
        "graph_node": "graph node id",
        "in_device": "inDevice",
        "collective": "Collective name",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "group_size": "Group size",
        "group": "Process Group Name",
        "members": "Process Group Ranks",
        "rank": "Rank",
        "blocks": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
    },
):
    """Numbers may be strings (ROCm writes `"bytes": "616"`), so every one is a `Number`.

    A missing one is UNKNOWN already here: columns of integers need no second look. What describes
    collectives may be anything: other rows may use such a common key as `dtype` for ends of theirs.
    """

    correlation: Number = UNKNOWN
    external_id: Number = UNKNOWN
    external_id_lower: Number = UNKNOWN
    stream: Number = UNKNOWN
    device: Number = UNKNOWN
    in_device: Number = UNKNOWN
    bytes: Number = UNKNOWN
    sequence: Number = UNKNOWN
    forward_thread: Number = UNKNOWN
    copy_kind: Number = None
    source_kind: Number = None
    target_kind: Number = None
    graph: Number = UNKNOWN
    graph_node: Number = UNKNOWN
    name: Number = None
    collective: Any = None
    elements_in: Any = UNKNOWN
    elements_out: Any = UNKNOWN
    dtype: Any = None
    group_size: Any = UNKNOWN
    group: Any = None
    members: Any = None
    rank: Any = None
    blocks: Number = nan
    occupancy: Number = nan


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

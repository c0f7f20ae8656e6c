"""The typed view of one Chrome trace event: every field that is read, and no other."""

from __future__ import annotations

from math import nan
from typing import Any

import msgspec
from msgspec import Raw, field

from traceprobe.model.events import UNKNOWN

Number = int | float | str | None
_NOTHING = Raw()


class Args(msgspec.Struct, gc=False):
    """Numbers may be strings (ROCm writes `"bytes": "616"`), so every one is a `Number`.

    A missing one is UNKNOWN already here: columns of integers need no second look. What describes
    collectives may be anything: other rows may use such a common key as `dtype` for ends of theirs.
    Operands stay JSON: of many calls few are distinct.
    """

    correlation: Number = UNKNOWN
    external_id: Number = field(default=UNKNOWN, name="External id")
    external_id_lower: Number = field(default=UNKNOWN, name="external id")
    stream: Number = UNKNOWN
    device: Number = UNKNOWN
    in_device: Number = field(default=UNKNOWN, name="inDevice")
    bytes: Number = UNKNOWN
    sequence: Number = field(default=UNKNOWN, name="Sequence number")
    forward_thread: Number = field(default=UNKNOWN, name="Fwd thread id")
    copy_kind: Number = field(default=None, name="copy kind")
    source_kind: Number = field(default=None, name="src kind")
    target_kind: Number = field(default=None, name="dst kind")
    graph: Number = field(default=UNKNOWN, name="graph id")
    graph_node: Number = field(default=UNKNOWN, name="graph node id")
    sync_kind: Any = field(default=None, name="cuda_sync_kind")
    wait_stream: Any = field(default=UNKNOWN, name="wait_on_stream")
    wait_record: Any = field(default=UNKNOWN, name="wait_on_cuda_event_record_corr_id")
    wait_event: Any = field(default=UNKNOWN, name="wait_on_cuda_event_id")
    event_id: Any = UNKNOWN
    name: Number = None
    collective: Any = field(default=None, name="Collective name")
    elements_in: Any = field(default=UNKNOWN, name="In msg nelems")
    elements_out: Any = field(default=UNKNOWN, name="Out msg nelems")
    dtype: Any = None
    group_size: Any = field(default=UNKNOWN, name="Group size")
    group: Any = field(default=None, name="Process Group Name")
    members: Any = field(default=None, name="Process Group Ranks")
    rank: Any = field(default=None, name="Rank")
    blocks: Number = field(default=nan, name="blocks per SM")
    occupancy: Number = field(default=nan, name="est. achieved occupancy %")
    dims: Raw = field(default=_NOTHING, name="Input Dims")
    types: Raw = field(default=_NOTHING, name="Input type")
    strides: Raw = field(default=_NOTHING, name="Input Strides")
    values: Raw = field(default=_NOTHING, name="Concrete Inputs")
    sample: Any = field(default=nan, name="")


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

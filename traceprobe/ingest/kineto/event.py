"""The typed view of one Chrome trace event: every field that is read, and no other."""

from __future__ import annotations

from math import nan
from typing import Any

import msgspec
from msgspec import Raw, field

from traceprobe.model.codes import UNKNOWN

Number = int | float | str | None
_NOTHING = Raw()


class Args(msgspec.Struct, gc=False):
    """Numbers may be strings (ROCm writes `"bytes": "616"`), so every one is a `Number`.

    A missing one is UNKNOWN already here: columns of integers need no second look. What describes
    collectives may be anything: other rows may use such a common key as `dtype` for ends of theirs.
    Operands stay JSON: of many calls few are distinct.

    First come those that most events have, in the profiler's order: a decoder looks for a key from
    where it found the last one.
    """

    external_id: Number = field(default=UNKNOWN, name="External id")
    device: Number = UNKNOWN
    stream: Number = UNKNOWN
    correlation: Number = UNKNOWN
    bytes: Number = UNKNOWN
    blocks: Number = field(default=nan, name="blocks per SM")
    occupancy: Number = field(default=nan, name="est. achieved occupancy %")
    sequence: Number = field(default=UNKNOWN, name="Sequence number")
    forward_thread: Number = field(default=UNKNOWN, name="Fwd thread id")
    in_device: Number = field(default=UNKNOWN, name="inDevice")
    external_id_lower: Number = field(default=UNKNOWN, name="external id")
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

"""The records that say what they are: what a file holds is told by its `kind`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from traceprobe.records.base import Record
from traceprobe.records.causal import Causal
from traceprobe.records.comparison import Comparison
from traceprobe.records.gpus import GpuComparison
from traceprobe.records.hang import Hang
from traceprobe.records.ladder import Ladder
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.roofline import RooflineRecord
from traceprobe.records.scaling import Scaling
from traceprobe.records.watch import Watch
from traceprobe.records.whatif import WhatIf

KINDS: Mapping[str, type[Record]] = {
    "causal": Causal,
    "comparison": Comparison,
    "gpus": GpuComparison,
    "hang": Hang,
    "ladder": Ladder,
    "peaks": MeasuredPeaks,
    "roofline": RooflineRecord,
    "scaling": Scaling,
    "watch": Watch,
    "whatif": WhatIf,
}
"""By `kind`, which is also the name of the page in `traceprobe.render.pages`."""


def kind_of(text: str | bytes) -> str | None:
    """The kind that a result in JSON says it is of; None where it says none, as reports do.

    Raises:
        msgspec.MsgspecError: it is no JSON object.
    """
    return msgspec.json.decode(text, type=_Head).kind


def is_ablation(text: str | bytes) -> bool:
    """Whether a result in JSON is an ablation, which says no kind.

    Raises:
        msgspec.MsgspecError: it is no JSON object.
    """
    head = msgspec.json.decode(text, type=_Head)
    return head.kind is None and head.variants is not None and head.oracle is not None


def read(text: str | bytes) -> Record:
    """Read back what a record's `to_json` wrote.

    Raises:
        msgspec.MsgspecError: it is no JSON, of an unknown kind, or breaks its schema.
        OtherVersion: its schema has another major version.
        DamagedRecord: it contradicts itself.
    """
    kind = kind_of(text)
    if kind is None or kind not in KINDS:
        raise msgspec.ValidationError(f"its kind is {kind!r}, known are {', '.join(KINDS)}")
    return KINDS[kind].from_json(text)


class _Head(msgspec.Struct):
    kind: str | None = None
    variants: object = None
    oracle: object = None

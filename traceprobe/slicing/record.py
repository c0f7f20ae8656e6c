"""What the capture of traceprobe itself leaves in a trace, without what others may have added."""

from __future__ import annotations

from typing import Any

import msgspec

from traceprobe.model.sidecar import Sidecar
from traceprobe.records.memory import Memory, read
from traceprobe.vocabulary import facts, quoted

RECORDED = {*Sidecar.__struct_fields__, "schedule", "world_size", "rank"}
"""Fields that are kept, also those that older recordings had."""


def public_record(record: Any) -> dict[str, Any]:
    """The known facts of a record, in known words; nothing of what is no record."""
    if not isinstance(record, dict):
        return {}
    kept = facts({k: v for k, v in record.items() if k in RECORDED and k != "memory"})
    memory = read(record.get("memory"))
    return kept if memory is None else {**kept, "memory": _public_memory(memory)}


def _public_memory(memory: Memory) -> dict[str, Any]:
    """As it was recorded; reasons may quote anything."""
    told: dict[str, Any] = msgspec.to_builtins(memory)
    for reason in ("not_measured", "not_predicted"):
        if told[reason] is not None:
            told[reason] = quoted(told[reason])
    return told

"""What the capture of traceprobe itself leaves in a trace, without what others may have added."""

from __future__ import annotations

from typing import Any

RECORDED = frozenset(
    {
        *("unprofiled_step_ms", "unprofiled_data_wait_ms", "calibration_steps", "hardware"),
        *("calibration_step_ms", "peak_memory_bytes", "workload", "libraries", "flags"),
        *("samples_per_second", "tokens_per_second", "schedule", "world_size", "rank"),
    }
)


def public_record(record: Any) -> dict[str, Any]:
    """The known keys of a record; nothing of what is no record."""
    return {k: v for k, v in record.items() if k in RECORDED} if isinstance(record, dict) else {}

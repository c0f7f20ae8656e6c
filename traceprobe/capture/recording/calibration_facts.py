"""What a recording says of the loop without the profiler, as the sidecar has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceprobe.capture.recording.timed_block import TimedBlock


def calibration(blocks: Sequence[TimedBlock], *, slowed: bool) -> dict[str, Any]:
    """All blocks, and the step of those that count: the last with the profiler, and beside it.

    Args:
        blocks: in order, one with the profiler at least, and one without it before that.
        slowed: whether the profiler slowed what came after it, which then does not count.
    """
    last = max(place for place, block in enumerate(blocks) if block.profiled)
    kept = blocks[last - 1 : last + 1 + (not slowed)]
    return {
        **_step([block for block in kept if not block.profiled]),
        "blocks": [block.facts(kept=block in kept) for block in blocks],
    }


def throughput(described: Mapping[str, object], unprofiled_step_ms: float) -> dict[str, float]:
    """Samples and tokens per second without a profiler, of what the program describes."""
    seconds = unprofiled_step_ms / 1e3
    return {
        f"{unit}_per_second": round(count / seconds, 3)
        for unit in ("samples", "tokens")
        if isinstance(count := described.get(f"{unit}_per_step"), (int, float))
    }


def _step(blocks: Sequence[TimedBlock]) -> dict[str, Any]:
    """What the sidecar says of the steps without a profiler, all blocks together."""
    count = sum(block.steps for block in blocks)
    elapsed = sum(block.elapsed_ns for block in blocks)
    waits = [wait for block in blocks for wait in block.waits]
    told = len(waits) == count
    others = sum(block.other_waits_ns for block in blocks)
    return {
        "unprofiled_step_ms": round(elapsed / count / 1e6, 6),
        # None where nobody measures the waiting in the loader.
        "unprofiled_data_wait_ms": round(sum(waits) / count / 1e6, 6) if told else None,
        **({"unprofiled_other_wait_ms": round(others / count / 1e6, 6)} if others and told else {}),
        "calibration_steps": count,
        "calibration_step_ms": [ms for block in blocks for ms in block.durations_ms],
    }

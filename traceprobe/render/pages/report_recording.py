"""How a recording was made, in facts of the report's page."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from traceprobe.formatting import counted, significant
from traceprobe.records.recording import RecordedBlock, Recording

MOST_BLOCKS = 12
"""Blocks that are listed; a recording of ours has at most nine."""


def recording_facts(recording: Recording) -> Iterator[tuple[str, str]]:
    """The warm-up and the blocks of steps, in order of time."""
    steps = counted(recording.warmup_steps, "step")
    state = "steady" if recording.steady else "not known to be steady"
    period = (
        f"; the loop repeats itself after {counted(recording.period, 'step')}"
        if recording.period > 1
        else ""
    )
    why = "" if recording.reason is UNSET else f" ({recording.reason})"
    yield "warm-up", f"{steps}, then {state}{why}{period}"
    listed = [_block(block) for block in recording.blocks[:MOST_BLOCKS]]
    yield "recorded", "; ".join(listed)


def _block(block: RecordedBlock) -> str:
    profiler = "with" if block.profiled else "without"
    clock = "" if block.sm_mhz is None else f" at {block.sm_mhz:,.0f} MHz"
    discarded = "" if block.kept else ", not counted"
    return (
        f"{counted(block.steps, 'step')} {profiler} the profiler: "
        f"{significant(block.step_ms)} ms each{clock}{discarded}"
    )

"""How a recording of traceprobe was made: its warm-up, and its blocks of steps."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from traceprobe.records.texts import Sentence


class RecordedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in a row, all with the profiler or all without it."""

    profiled: bool
    steps: int
    step_ms: float
    """Mean step; of a profiled block with the steps in which the profiler settles."""
    kept: bool
    """Whether it counts; of a block that was made again only the last does."""
    sm_mhz: float | None
    """Mean clock of the GPU; null where it was not read."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The warm-up of a rank and its blocks, in order of time."""

    warmup_steps: int
    steady: bool
    """Whether the pace no longer changed when the warm-up ended."""
    period: int
    """Steps after which the loop repeats itself."""
    reason: Sentence | msgspec.UnsetType = UNSET
    """Why the loop is not called steady, or its blocks hold no whole periods."""
    blocks: list[RecordedBlock]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.period < 1 or self.warmup_steps < 0:
            yield "quality.recording: a number of steps is impossible"
        if any(block.steps < 0 or block.step_ms < 0 for block in self.blocks):
            yield "quality.recording: a block takes less than no time"

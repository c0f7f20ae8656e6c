"""When a training is recorded, and where that goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from traceprobe.capture.recording.short_capture import ACTIVE

REQUEST_FILE = "record"
"""Its appearance in the output folder asks for a recording."""
MOST_STEPS = 100
"""Of a recording; the profiler holds them in memory."""
WAIT_S = 60.0


@dataclass(frozen=True)
class Settings:
    """The arguments that all integrations share.

    Args:
        every: steps between recordings; 0 for none but those that are asked for.
        output: folder of the recordings, one for each training. Ranks must share it.
        steps: that are kept of a recording.
        signal: whose arrival asks for a recording; None for none.
        wait_s: how long the end of the training may wait for the last report, s.

    Raises:
        ValueError: one of them makes no sense.
    """

    every: int
    output: Path
    steps: int = ACTIVE
    signal: int | None = None
    wait_s: float = WAIT_S

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(f"every={self.every}: a number of steps, or 0 for none")
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps={self.steps}: between 1 and {MOST_STEPS}")
        if not self.wait_s >= 0:
            raise ValueError(f"wait_s={self.wait_s}: a number of seconds")

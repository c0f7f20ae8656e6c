"""How many steps the blocks of a recording have: whole periods, and long enough for a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceprobe.capture.recording.recording_plan import LEAD_IN, RecordingPlan

MOST_AHEAD = 64
"""Steps in which batches are used up that a loader has ready, at most."""
LONGEST = 5
"""Times its planned length that a block may have."""
BLOCK_MS = 500.0
"""Shortest lead-in and shortest unprofiled block on a GPU, as far as `LONGEST` allows.

At its power limit a GPU lowers its clock only after some 100 ms of work. Measured on an H200: large
products took 10.9 ms a step in blocks of 110 ms, and 11.4 in a long run.
"""


@dataclass(frozen=True)
class BlockLengths:
    """Lengths for a loop.

    Args:
        period: steps after which it repeats itself.
        pace_ms: its step, where it computes on a GPU; else None.
        ahead: steps for which a loader has batches ready after a pause, such as the start of a
            profiler, in which its workers fill their queues. They show no wait for data, so none of
            them is timed or kept.
    """

    plan: RecordingPlan
    period: int = 1
    pace_ms: float | None = None
    ahead: int = 0

    def lead_in(self, planned: int, made: int = 0) -> int:
        """Steps that are not timed before an unprofiled block of so many planned ones.

        Args:
            made: steps since the last pause.
        """
        return max(self._lasting(LEAD_IN, LONGEST * planned), self.ready - made)

    @property
    def ready(self) -> int:
        """Steps under the profiler before those in which it settles: they use up what was ready."""
        return min(self.ahead, MOST_AHEAD)

    @property
    def settle(self) -> int:
        """All steps under the profiler that are thrown away."""
        return self.ready + self.plan.settle

    def unprofiled(self, planned: int) -> int:
        """Steps of an unprofiled block."""
        return self._whole(self._lasting(planned, LONGEST * planned), LONGEST * planned)

    @property
    def active(self) -> int:
        """Steps under the profiler that are kept."""
        return self._whole(self.plan.active, LONGEST * self.plan.active)

    @property
    def steps(self) -> int:
        """All of them, where the profiled block is made once."""
        before, after = self.plan.calibrate_before, self.plan.calibrate_after
        unprofiled = sum(self.unprofiled(half) for half in (before, after))
        lead_ins = self.lead_in(before, self.plan.warmup) + self.lead_in(after)
        return lead_ins + unprofiled + self.settle + self.active + 1

    @property
    def wanting(self) -> int:
        """Unprofiled steps that it needs for whole periods in both halves; 0 where it has them."""
        shortest = min(self.plan.calibrate_before, self.plan.calibrate_after)
        return 2 * self.period if self.unprofiled(shortest) % self.period else 0

    def _lasting(self, least: int, most: int) -> int:
        if self.pace_ms is None:
            return least
        return min(max(least, ceil(BLOCK_MS / max(self.pace_ms, 1e-3))), most)

    def _whole(self, steps: int, most: int) -> int:
        """The fewest whole periods that hold so many; `steps` where those are too many."""
        whole = -(-steps // self.period) * self.period
        return whole if whole <= most else most // self.period * self.period or steps

"""Steps in a row, all with the profiler or all without it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from traceprobe.capture.recording.steadiness import LONG

SAME_PACE = 0.05
"""Blocks without the profiler whose steps differ by less have one pace."""
SHORTER = 1.10
"""Ratio from which on steps are shorter with the profiler than without by more than chance."""
SAME_CLOCK = 1.10
"""Ratio of mean clocks of the device below which they are one clock."""
SAME_BRIEF_CLOCK, BRIEF_MS = 1.25, 500.0
"""The same where a mean is one over a shorter time: at its power limit a clock moves by 12 %."""

OTHERS_PERCENT = 5
"""Of the device's time, from which on other processes count."""


@dataclass
class TimedBlock:
    """Marks and waits of the steps of a block.

    Args:
        marks: beginning of each step and the end of the last, ns of `time.perf_counter_ns`.
        waits: ns in the loader's `next`, one a step; empty where nobody measures them.
        clock, cpu: device and cores meanwhile, fields of `BlockClock` and `BlockCpu` of
            `traceprobe.model.sidecar`.
        other_waits_ns: in the `next` of loaders that do not feed the steps, as of an evaluation.
    """

    profiled: bool
    marks: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    clock: dict[str, Any] = field(default_factory=dict)
    cpu: dict[str, Any] = field(default_factory=dict)
    other_waits_ns: int = 0

    def mark(self) -> None:
        """A step ends, or the first one begins."""
        self.marks.append(time.perf_counter_ns())

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return len(self.marks) - 1

    @property
    def elapsed_ns(self) -> int:
        """From the first mark to the last."""
        return self.marks[-1] - self.marks[0]

    @property
    def step_ms(self) -> float:
        """Mean of the steps, ms."""
        return self.elapsed_ns / self.steps / 1e6

    @property
    def durations_ms(self) -> list[float]:
        """Each step by the host's clock, which runs ahead of the device; their sum is exact."""
        return [round((end - begin) / 1e6, 3) for begin, end in pairwise(self.marks)]

    def facts(self, *, kept: bool) -> dict[str, Any]:
        """The block as the sidecar has it."""
        waited = round(sum(self.waits) / self.steps / 1e6, 6) if self.waits else None
        return {
            "profiled": self.profiled,
            "steps": self.steps,
            "step_ms": round(self.step_ms, 6),
            "data_wait_ms": waited,
            "kept": kept,
            **({"clock": self.clock} if self.clock else {}),
            **({"cpu": self.cpu} if self.cpu else {}),
        }


def same_pace(before: TimedBlock, after: TimedBlock) -> bool:
    """Whether two blocks without the profiler are of one pace."""
    steps = before.step_ms, after.step_ms
    return max(steps) <= (1 + SAME_PACE) * min(steps)


def same_clock(blocks: Sequence[TimedBlock]) -> bool:
    """Whether the device had one clock in all of them, as far as it told."""
    told = [(b.clock.get("sm_mhz") or b.clock.get("spin_mhz"), b.elapsed_ns / 1e6) for b in blocks]
    known = [mhz for mhz, _ in told if mhz]
    brief = any(ms < BRIEF_MS for mhz, ms in told if mhz)
    most = SAME_BRIEF_CLOCK if brief else SAME_CLOCK
    return not known or max(known) < most * min(known)


def shorter_with_profiler(before: TimedBlock, profiled: TimedBlock, after: TimedBlock) -> bool:
    """Whether steps with the profiler are shorter than those on both sides of them.

    No profiler makes them so: something else did, as batches that lay ready.
    """
    return SHORTER * profiled.step_ms < min(before.step_ms, after.step_ms)


def slowed_by_profiler(before: TimedBlock, profiled: TimedBlock, after: TimedBlock) -> bool:
    """Whether steps take longer once a profiler ran, though nothing else is known to have changed.

    What a profiler leaves in the process slows a host that launches; to make the blocks again only
    repeats that. It needs a device that tells its clock: without, it may as well be another pace.
    """
    blocks = before, profiled, after
    alone = all((block.clock.get("others_percent") or 0) < OTHERS_PERCENT for block in blocks)
    told = all(block.clock.get("sm_mhz") for block in blocks)
    usual = not has_long_steps(before) and not has_long_steps(after)
    longer = after.step_ms > (1 + SAME_PACE) * before.step_ms
    return longer and usual and told and alone and same_clock(blocks)


def has_long_steps(block: TimedBlock) -> bool:
    """Whether some steps take far longer; the last, which waits for the device, does not count."""
    steps = sorted(block.durations_ms[:-1])
    return bool(steps) and steps[-1] > LONG * steps[len(steps) // 2]

"""The second capture of a recording, in the program: operators with shapes, lines and modules.

What it leaves in the folder of the recording is read by `embed`, in the process that started the
program; the program's own Python may lack what that needs.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from traceprobe.capture.blame.line_trace import LineTrace
from traceprobe.capture.blame.own_code import own_code
from traceprobe.capture.process.progress import write_result
from traceprobe.capture.profiler.cupti import detach_after_profiles, detaching
from traceprobe.capture.profiler.gloo_threads import wait_for_gloo

SETTLING = 1
"""Steps that are thrown away: code is traced, and compiled, for the first time."""
STEPS = 2
MOST_STEPS = 8
"""Steps at most until an optimizer steps: one of them shows an update."""
CLOCK = "traceprobe clock"
"""The range whose operators tell where the clock of `perf_counter_ns` is on the trace's."""
_MARKS = 4


def heavy_trace_name(rank: int) -> str:
    """File name of a rank's second trace, as long as its names are not carried over."""
    return f"rank{rank}.names.trace"


def names_name(rank: int) -> str:
    """File name of what a rank noted beside its second trace, or of why there is none."""
    return f"rank{rank}.names"


def instants_name(rank: int) -> str:
    """File name of a rank's instants: numbers of 64 bits."""
    return f"rank{rank}.names.instants"


class BlameRecorder:
    """Records names in the steps after the timed ones.

    Args:
        updates_counted: whether every step ends with one of the optimizer.
    """

    def __init__(self, folder: str, rank: int, *, updates_counted: bool) -> None:
        self._folder, self._rank = Path(folder), rank
        self._updates_counted = updates_counted
        self._lines = LineTrace(own_code())
        self._profile: Any = None
        self._step = 0
        self._updates_before = 0
        self._marks: list[tuple[int, int]] = []

    def start(self) -> None:
        """Begin with the settling steps."""
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        detach_after_profiles()
        self._profile = profile(
            activities=activities,
            schedule=lambda step: (
                ProfilerAction.WARMUP if step < SETTLING else ProfilerAction.RECORD
            ),
            record_shapes=True,
        )
        self._profile.__enter__()
        self._lines.start()

    @property
    def wanting(self) -> int:
        """Steps that have still to be made, at least."""
        return max(SETTLING + STEPS - self._step, 1)

    def step(self) -> bool:
        """A step has ended: whether another one is needed."""
        self._step += 1
        made = self._step - SETTLING
        if made == 0:
            self._updates_before = self._lines.updates
        updated = self._updates_counted or self._lines.updates > self._updates_before
        if made >= MOST_STEPS or (made >= STEPS and updated):
            return False
        self._profile.step()
        self._mark_clock()
        return True

    def stop(self) -> None:
        """End, and leave what was recorded."""
        ended = time.perf_counter_ns()
        self._lines.stop()
        wait_for_gloo()
        with detaching():
            self._profile.__exit__(None, None, None)
        with (self._folder / instants_name(self._rank)).open("wb") as file:
            self._lines.instants.tofile(file)
        self._profile.export_chrome_trace(str(self._folder / heavy_trace_name(self._rank)))
        self._write(
            {
                "thread": threading.get_native_id(),
                "codes": self._lines.codes,
                "modules": self._lines.modules,
                "marks": self._marks,
                "ended": ended,
                "call_ns": self._lines.call_ns,
                "lines_missing": self._lines.reason,
            }
        )

    def abandon(self, reason: str) -> None:
        """End without names, and leave why."""
        self._lines.stop()
        if self._profile is not None:
            wait_for_gloo()
            with detaching():
                self._profile.__exit__(None, None, None)
            self._profile = None
        self._write({"reason": reason})

    def _write(self, noted: dict[str, Any]) -> None:
        write_result(self._folder / names_name(self._rank), json.dumps(noted))

    def _mark_clock(self) -> None:
        """Operators of next to no length between two readings of our clock."""
        import torch
        from torch.profiler import record_function

        with record_function(CLOCK):
            for _ in range(_MARKS):
                before = time.perf_counter_ns()
                torch.empty(0, device="cpu")
                self._marks.append((before, time.perf_counter_ns()))

"""Busy time of the GPU in a step: durations on the device survive a profiler."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceprobe.capture.machine.device import computes
from traceprobe.capture.oracle.blocks import LEAD_IN
from traceprobe.capture.oracle.ranks import synchronize
from traceprobe.capture.profiler.cupti import detach_after_profiles, detaching
from traceprobe.capture.profiler.other_profilers import other_profilers

BUSY_STEPS = 6
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_COLLECTIVE = ("nccl", "rccl")


@dataclass(frozen=True)
class BusyTime:
    """What the GPU did in a step.

    Args:
        ns: time in which a kernel or copy ran, collectives left out; None without a GPU.
        collectives: whether every step has some.
    """

    ns: float | None = None
    collectives: bool = False


def busy_time(
    hold: AbstractContextManager[object], folder: str, period: int
) -> Generator[None, None, BusyTime]:
    """Record a few steps, whole periods of the loop.

    Args:
        hold: the condition that they are made under.
    """
    import torch

    # Beside a profiler of the program's own there is no busy time, but all the rest.
    if not computes() or torch.autograd._profiler_enabled():
        return BusyTime()
    steps = BUSY_STEPS + -BUSY_STEPS % period
    with hold:
        for _ in range(LEAD_IN):
            yield
        synchronize()
        other_profilers.claim(folder, "torch")
        detach_after_profiles()
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        with other_profilers.ours():
            profile.start()
        try:
            for _ in range(steps):
                yield
            synchronize(together=False)
        finally:
            with other_profilers.ours(), detaching():
                profile.stop()
            other_profilers.release()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "busy.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    return BusyTime(union_ns(events) / steps, sum(map(_is_collective, events)) >= steps)


def _is_collective(event: dict[str, Any]) -> bool:
    return event.get("cat") == "kernel" and event["name"].lower().startswith(_COLLECTIVE)


def union_ns(events: list[dict[str, Any]]) -> float:
    """Time in which at least one kernel or copy ran, collectives left out."""
    spans = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0)))
        for event in events
        if event.get("cat") in _GPU_WORK and not _is_collective(event)
    )
    total, reach = 0.0, -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return 1e3 * total

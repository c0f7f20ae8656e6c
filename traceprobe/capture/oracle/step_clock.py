"""When the steps of a block end, without waiting for the device."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from traceprobe.capture.machine.device import computes


class StepClock:
    """Marks between steps; on a GPU each is an event among the work of the current stream.

    The host runs ahead of the device until something waits for it, and that step then seems to take
    as long as all before it. Events are where the device is.
    """

    def __init__(self) -> None:
        self._gpu = computes()
        self._events: list[Any] = []
        self._times: list[float] = []

    def mark(self) -> None:
        """A step ends, and the next one begins."""
        self._times.append(time.perf_counter())
        if self._gpu:
            import torch

            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def end(self) -> tuple[float, list[float]]:
        """Seconds from the first mark until now, and of each step; the device has been waited for.

        Where events were recorded, the steps sum up to the time between the first and the last.
        """
        seconds = time.perf_counter() - self._times[0]
        if self._gpu:
            return seconds, [a.elapsed_time(b) / 1e3 for a, b in pairwise(self._events)]
        self._times[-1] = self._times[0] + seconds
        return seconds, [end - begin for begin, end in pairwise(self._times)]

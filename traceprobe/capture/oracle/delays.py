"""Delays of known length on the thread that trains, and on the stream of the GPU it uses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from traceprobe.capture.oracle.blocks import Unavailable

_REPEATS = 20
"""Spins that are timed together."""
_HEAD_START_S = 2e-3
"""Of the host over the device, so that the spins follow each other without a gap."""
_TRIAL_CYCLES = 4_000_000
"""About 2 ms on GPUs of today; decides how many cycles a delay has."""


class Delay(Protocol):
    """A delay that can be given again and again."""

    @property
    def given_s(self) -> float:
        """How much of it there was so far, in seconds."""

    def __call__(self) -> None:
        """Take that long."""

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Whatever has to be known before it is given, and after."""


class HostSpin:
    """The calling thread computes, and holds the interpreter's lock as Python code does."""

    def __init__(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)
        self.given_s = 0.0

    def __call__(self) -> None:
        """Take that long."""
        began = time.perf_counter_ns()
        end = began + self._ns
        while (now := time.perf_counter_ns()) < end:
            pass
        self.given_s += (now - began) / 1e9

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Nothing has to be known: the clock says how long each took."""
        yield


class DeviceSpin:
    """A kernel that does nothing for some cycles of the GPU's clock, on the current stream.

    How long it takes is measured before and after the steps that have it: the clock may change.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cycles = 0
        self._count = 0
        self.given_s = 0.0

    def __call__(self) -> None:
        """Have the device take that long, from where its stream has come to by then."""
        import torch

        if not torch.cuda.is_current_stream_capturing():  # a graph would keep it
            torch.cuda._sleep(self._cycles)
            self._count += 1

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Measure how long it takes, and how often it was given."""
        import torch

        if not hasattr(torch.cuda, "_sleep"):
            raise Unavailable("this PyTorch has no kernel that waits")
        torch.cuda.synchronize()
        cycles_per_s = _TRIAL_CYCLES / _spin_s(_TRIAL_CYCLES, 1)
        self._cycles = max(1, round(self._seconds * cycles_per_s))
        before, self._count = _spin_s(self._cycles, _REPEATS), 0
        try:
            yield
        finally:
            torch.cuda.synchronize()
            given = self._count
            after = _spin_s(self._cycles, _REPEATS)
            self.given_s += given * (before + after) / 2


def _spin_s(cycles: int, repeats: int) -> float:
    """Seconds of the device for a spin, the mean of some that follow each other."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(round(_HEAD_START_S * 2e9))
    begin.record()
    for _ in range(repeats):
        torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / repeats

"""The clock of a GPU by a kernel that counts a known number of its cycles."""

from __future__ import annotations

_FEW, _MANY = 2_000_000, 10_000_000
"""Cycles of both kernels: 1 and 5 ms at 2 GHz, long beside the resolution of events, 0.5 µs."""


def spin_mhz() -> float | None:
    """Clock of the current device's multiprocessors now, MHz; takes about 15 ms of it.

    The kernel waits until its multiprocessor's cycle counter has advanced, so its time is cycles
    over clock. Two of different length are timed: the difference has no part of the launch. It
    waits for the current stream. At a constant clock it is within 0.4 % of what NVML says (H200,
    1,980 MHz); at the power limit, where the clock never rests, 10 % apart was seen. None without
    such a kernel, and while a CUDA graph is captured.
    """
    import torch

    try:
        if torch.version.hip or not torch.cuda.is_initialized():
            return None
        if torch.cuda.is_current_stream_capturing():
            return None
        few, many = (min(_milliseconds(c), _milliseconds(c)) for c in (_FEW, _MANY))
    except Exception:  # a private function that may be missing; a program that failed on its GPU
        return None
    return round((_MANY - _FEW) / (many - few) / 1e3, 1) if many > few else None


def _milliseconds(cycles: int) -> float:
    """How long a kernel of so many cycles takes on the current stream."""
    import torch

    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended))

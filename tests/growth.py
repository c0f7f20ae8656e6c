"""Whether work grows as its input does: twice as much may take little more than twice as long."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ROUNDS = 10
MOST = 2.5
LEAST_S = 0.05
"""What takes less does not measure the work but the computer."""


def _seconds(work: Callable[[], object]) -> float:
    """The processor's time, without that of the collector: it begins to run at some size."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Work on an input of twice a size takes at most 2.5 times the processor's time.

    Args:
        prepare: makes the work on an input of a size, which itself is not timed.
    """
    once, twice = prepare(size), prepare(2 * size)
    short = long = float("inf")
    for _ in range(ROUNDS):  # other processes may have had the caches and the memory bus
        long = min(long, _seconds(twice))
        if long <= MOST * LEAST_S:
            return
        short = min(short, _seconds(once))
        if long <= MOST * short:
            return
    raise AssertionError(f"{size}: {short:.3f} s, twice as much: {long:.3f} s")

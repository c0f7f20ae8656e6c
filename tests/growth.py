"""Whether work grows as its input does, and not as its square.

Four times as much takes 4 times as long where work is linear, 16 times where it is quadratic. The
limit of 8 lies between them, a factor of two from either: more than a busy computer adds to
the least of ten measurements (or a buffer that is outgrown once).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ROUNDS = 10
MOST = 8.0
LEAST_S = 0.125
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
    """Work on twice a size takes at most 8 times the processor's time of work on half that size.

    Args:
        prepare: makes the work on an input of a size, which itself is not timed.
    """
    little, much = prepare(size // 2), prepare(2 * size)
    gc.freeze()  # what other tests keep is not looked through before each measurement
    short = long = float("inf")
    for _ in range(ROUNDS):  # other processes may have had the caches and the memory bus
        long = min(long, _seconds(much))
        if long <= LEAST_S:
            return
        short = min(short, _seconds(little))
        if long <= MOST * short:
            return
    raise AssertionError(f"{size // 2}: {short:.3f} s, four times as much: {long:.3f} s")

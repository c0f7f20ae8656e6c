"""Handlers of signals that last for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled(
    numbers: Collection[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """While this lasts, signals go to `handler`. What is ignored (`nohup`) stays ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [number for number, own in before.items() if own is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])

"""Ends that come from outside."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP end processes and remove files as Ctrl-C does.

    The exit code is 128 and the number of the signal. What is ignored (`nohup`) stays ignored.
    """
    before = {number: signal.getsignal(number) for number in _ENDS}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _exit(number: int, frame: FrameType | None) -> None:
    """End once: a second signal must not interrupt what cleans up after the first."""
    for other in _ENDS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)

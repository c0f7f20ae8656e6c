"""Ends that come from outside."""

from __future__ import annotations

import signal
import sys
from contextlib import AbstractContextManager
from types import FrameType

from traceprobe.system.signals import handled

_ENDS = (signal.SIGTERM, signal.SIGHUP)


def ended_in_order() -> AbstractContextManager[None]:
    """While this lasts, SIGTERM and SIGHUP end processes and remove files as Ctrl-C does.

    The exit code is 128 and the number of the signal.
    """
    return handled(_ENDS, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    """End once: a second signal must not interrupt what cleans up after the first."""
    for other in _ENDS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)

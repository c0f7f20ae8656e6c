"""Ends that come from outside."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + int(signal.SIGTERM)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """While this lasts, SIGTERM ends processes and removes files as Ctrl-C does; exit code 143."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

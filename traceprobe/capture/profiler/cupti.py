"""What PyTorch's profiler leaves in a process that goes on training."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TEARDOWN = "TEARDOWN_CUPTI"
"""Asked by the profiler's library when a profile ends."""
SAFE_SINCE = 12, 6
"""Version of CUDA before which a program with CUDA graphs may crash when a profiler comes back."""
LEAVES_WITHIN_S = 1.0
_THREADS = Path("/proc/self/task")


def detach_after_profiles() -> None:
    """Have NVIDIA's profiling interface leave the process whenever a profile ends.

    It otherwise stays, and slows every launch that follows: on an H200, loops that the host limits
    took 10 to 35 % longer after a profile than before it. Who has set the variable is not
    overruled. It stays set, because the interface is also told when the next profile begins.
    """
    import torch

    version = torch.version.cuda
    if version is not None and tuple(map(int, version.split(".")[:2])) >= SAFE_SINCE:
        os.environ.setdefault(TEARDOWN, "1")


@contextmanager
def detaching() -> Iterator[None]:
    """Around the end of a profile: have the interface leave before anything else happens.

    A thread of the profiler's library waits for the next call of CUDA's runtime, in which the
    interface can leave. A program that makes none and ends would wait for that thread forever.
    """
    before = _foreign_threads()
    try:
        yield
    finally:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if os.environ.get(TEARDOWN) == "1" and cuda is not None and cuda.is_initialized():
            _call_until_gone(cuda, _foreign_threads() - before)


def _call_until_gone(cuda: Any, begun: set[int]) -> None:
    """Call CUDA's runtime until threads have ended, for a second at most."""
    deadline = time.monotonic() + LEAVES_WITHIN_S
    while begun & _foreign_threads() and time.monotonic() < deadline:
        with suppress(Exception):  # of a kernel of the program, which has to hear of it itself
            if not cuda.is_current_stream_capturing():
                cuda.current_stream().query()
        time.sleep(0.001)


def _foreign_threads() -> set[int]:
    """Those of this process that are none of Python's; none where the system does not say."""
    with suppress(OSError):
        own = {thread.native_id for thread in threading.enumerate()}
        return {int(path.name) for path in _THREADS.iterdir()} - own
    return set()

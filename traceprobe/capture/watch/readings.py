"""What a thread reads while a program trains: clock, memory, how long the loop had no CPU core.

The thread also writes what other threads have kept, so that a kill loses half a second.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceprobe.system.stolen_time import StolenTime

MOST = 1 << 15
"""Readings after which the time between two of them doubles, again and again: 4.5 hours at twice a
second. A month has some 300,000 of about 150 bytes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Readings:
    """A thread that reads and writes until it is ended.

    Args:
        path: file for a JSON object a line.
        seconds: between two readings.
        device: what the device's clock says now, by the fields of `BlockClock`.
        each: called after each reading, with it.
    """

    def __init__(
        self,
        path: Path,
        seconds: float,
        device: Callable[[], dict[str, Any]],
        each: Callable[[dict[str, Any]], None],
    ) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._seconds, self._device, self._each = seconds, device, each
        self._loop = threading.get_native_id()
        self._stolen = StolenTime()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="traceprobe-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Read once more, and no more."""
        self._over.set()
        self._thread.join(5)
        self._read()

    def _run(self) -> None:
        seconds, count = self._seconds, 0
        while not self._over.wait(seconds):
            with suppress(Exception):  # a reading less; the program goes on
                self._read()
            count += 1
            if count % MOST == 0:
                seconds *= 2

    def _read(self) -> None:
        with self._lock:
            reading = {
                "at_ns": time.perf_counter_ns(),
                "rss_bytes": _resident(),
                "cpu_wait_ns": self._without_core(),
                **_device_memory(),
                **self._device(),
            }
            known = {name: value for name, value in reading.items() if value is not None}
            os.write(self._file, json.dumps(known).encode() + b"\n")
            self._each(known)

    def _without_core(self) -> int | None:
        """How long the loop had no core, in all: others of this machine had it, or other machines.

        Of the second kind Linux does not know, and holds the thread to run.
        """
        waited = _waited_for_cpu(self._loop)
        return None if waited is None else waited + self._stolen.ns()


def _resident() -> int | None:
    """Memory of this process in RAM; None where the system has no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def _waited_for_cpu(thread: int) -> int | None:
    """How long a thread could have run and had no core, in all; None where Linux does not tell."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _device_memory() -> dict[str, int]:
    """Of the caching allocator of the current device, where the program uses one."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    stats = cuda.memory_stats()
    return {
        "allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
        "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
        "retries": stats.get("num_alloc_retries", 0),
    }

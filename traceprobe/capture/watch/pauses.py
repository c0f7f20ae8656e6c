"""Calls during which a training loop stands still: collections of garbage, files that are saved."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from traceprobe.capture.watch.loader_waits import Note
from traceprobe.capture.watch.rows import Kind

SHORTEST_NS = 500_000
"""Collections that take less are not noted: the youngest objects are looked at all the time."""
SAVERS = (
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("safetensors.torch", "save_file"),
)
"""What saves checkpoints, as far as the program has imported it."""


class Collections:
    """Python's collections of garbage from now on."""

    def __init__(self, note: Note) -> None:
        self._note, self._began = note, 0
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Watch no more."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._began = now
        elif now - self._began >= SHORTEST_NS:
            self._note(Kind.COLLECTION, info.get("generation", 0), now, now - self._began)


class Saves:
    """Files that the thread of the loop saves from now on; other threads do not hold it up."""

    def __init__(self, note: Note) -> None:
        self._note, self._thread = note, threading.get_ident()
        self._inside = False
        self._wrapped: list[tuple[Any, str, Any, Any]] = []
        for name, place in SAVERS:
            module = sys.modules.get(name)
            if callable(getattr(module, place, None)):
                self._wrap(module, place)

    def end(self) -> None:
        """Give back what was wrapped, where nobody else has wrapped it since."""
        for module, place, given, ours in self._wrapped:
            if getattr(module, place, None) is ours:
                setattr(module, place, given)
        self._wrapped.clear()

    def _wrap(self, module: Any, place: str) -> None:
        given: Callable[..., Any] = getattr(module, place)

        @wraps(given)
        def save(*arguments: Any, **options: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return given(*arguments, **options)
            began, self._inside = time.perf_counter_ns(), True
            try:
                return given(*arguments, **options)
            finally:
                self._inside = False
                now = time.perf_counter_ns()
                self._note(Kind.SAVE, 0, now, now - began)

        setattr(module, place, save)
        self._wrapped.append((module, place, given, save))

"""Inside a worker process of a DataLoader: which lines of the program its batches take.

A thread looks at the stack of the worker a hundred times a second, or less often where that costs
too much. What it finds is left in the folder of the recording when the measurement ends, or the
worker does.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.util
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceprobe.capture.loader.loader_tally import Tally
from traceprobe.capture.process.progress import write_result

PERIOD_S = 0.01
_MOST_COST = 0.002
"""Share of one CPU that looking may take."""
_LONGEST_S = 0.1
"""Between two looks, so that the end is seen soon."""
_MOST_NS = 1_000_000_000
"""A sample stands for the time since the one before, at most so much: code that holds the
interpreter's lock is seen less often, not less; a process that was stopped did nothing."""
MOST_WORKERS = 256
"""Workers of a process that are watched; every epoch may start new ones."""
_SUFFIX = ".loader"
_END = ".loader-end"
PATIENCE_S = 1.0
"""A worker writes within a few rounds, and is told many steps before its results are read."""


def watched_worker(folder: str, seed: int | None) -> Tally | None:
    """The tally of this worker process, which is sampled and saved from now on.

    Args:
        folder: of the recording.
        seed: what the iterator of the loader gave its workers as a base.

    Returns:
        None where the measurement is over, or enough workers are watched.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return None
    with suppress(OSError):
        target = None if _end(folder, parent.pid).exists() else _place(folder, parent.pid)
        if target is not None:
            return _Sampler(target, _end(folder, parent.pid), seed).tally
    return None


def _place(folder: str, parent: int) -> Path | None:
    """An empty file for this worker alone; None where as many as are watched have theirs.

    Workers start side by side, so each tries to be the one that makes a file.
    """
    for number in range(len(_files(folder, parent)), MOST_WORKERS):
        target = Path(folder) / f"{parent}-{number}{_SUFFIX}"
        with suppress(FileExistsError):
            target.touch(exist_ok=False)
            return target
    return None


def end_watching(folder: str) -> None:
    """Have the workers of this process leave what they found."""
    with suppress(OSError):
        _end(folder, os.getpid()).touch()


def left_by_workers(folder: str) -> Iterator[dict[str, Any]]:
    """What the workers of this process found, each with the `seed` that it was given."""
    deadline = time.monotonic() + PATIENCE_S
    files = _files(folder, os.getpid())
    while time.monotonic() < deadline and not all(map(_size, files)):
        time.sleep(PERIOD_S)
    for path in files:
        with suppress(OSError, ValueError):  # of a worker that was killed it is empty
            yield json.loads(path.read_text())


def _files(folder: str, parent: int) -> list[Path]:
    return sorted(Path(folder).glob(f"{parent}-*{_SUFFIX}"))


def _end(folder: str, parent: int) -> Path:
    return Path(folder) / f"{parent}{_END}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 1


class _Sampler:
    """Samples the thread that makes it, until it is told to end or its process ends."""

    def __init__(self, target: Path, end: Path, seed: int | None) -> None:
        self.tally = Tally()
        self._target, self._end, self._seed = target, end, seed
        self._thread = threading.get_ident()
        self._ended = False
        self._saving = threading.Lock()
        # A worker ends without the handlers of `atexit`.
        multiprocessing.util.Finalize(None, self._finish, exitpriority=0)
        threading.Thread(target=self._run, name="traceprobe", daemon=True).start()

    def _run(self) -> None:
        # Not in step with what is sampled; the program's own generator is left alone.
        vary = random.Random(os.getpid()).uniform
        tally, pause, rounds = self.tally, PERIOD_S, 0
        spent = dearest = 0.0
        last = time.perf_counter_ns()
        while not self._ended:
            time.sleep(pause * vary(0.5, 1.5))
            now = time.perf_counter_ns()
            tally.sample(sys._current_frames().get(self._thread), min(now - last, _MOST_NS))
            last = now
            rounds += 1
            if os.path.exists(self._end):  # noqa: PTH110 - the quicker one
                break
            before, spent = spent, time.thread_time()
            dearest = max(dearest, spent - before)
            # The first sample looks up much that later ones know; short-lived workers have few.
            cost = (spent - dearest) / rounds
            pause = min(max(PERIOD_S, cost / _MOST_COST), _LONGEST_S)
        self._save()

    def _finish(self) -> None:
        self._ended = True
        self._save()

    def _save(self) -> None:
        if not self._saving.acquire(blocking=False):
            return  # once is enough
        with suppress(OSError):
            write_result(self._target, json.dumps({"seed": self._seed, **self.tally.plain()}))

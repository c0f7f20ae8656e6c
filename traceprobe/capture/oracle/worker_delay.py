"""A delay in the worker processes of DataLoaders, told to them through a file they all map.

Workers begin long before anything is measured, and live on. Each looks into the file before it
makes a batch, and notes there what it has given.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MOST_WORKERS = 256
_WORD = 8
_SIZE = _WORD * (1 + 2 * MOST_WORKERS)
"""The delay, and for each worker the time it has given and the batches it has made, in ns."""


class DelayFile:
    """The file of one process of the program and its workers.

    Args:
        folder: of the measurement. owner: process id of the one that trains.
    """

    def __init__(self, folder: str, owner: int) -> None:
        path = Path(folder) / f"{owner}.worker-delay"
        with path.open("a+b") as file:
            os.truncate(file.fileno(), _SIZE)  # whoever comes first; zeros
            self._map = mmap.mmap(file.fileno(), _SIZE)
        # Whole words are written at once; bytes copied one by one may be seen half done.
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def of_this_process(cls, folder: str) -> DelayFile:
        """As the process that trains has it."""
        return cls(folder, os.getpid())

    @classmethod
    def of_parent(cls, folder: str) -> DelayFile | None:
        """As a worker has it; None in what is no worker, or where the file cannot be had."""
        parent = multiprocessing.parent_process()
        if parent is not None and parent.pid is not None:
            with suppress(OSError):
                return cls(folder, parent.pid)
        return None

    def set(self, seconds: float) -> None:
        """Each batch takes its worker that much longer from now on."""
        self._words[0] = round(seconds * 1e9)

    def given(self) -> tuple[float, int]:
        """Seconds that all workers together have given so far, and batches they have made."""
        words = self._words
        slots = range(MOST_WORKERS)
        return sum(words[1 + 2 * n] for n in slots) / 1e9, sum(words[2 + 2 * n] for n in slots)

    def slow(self, fetch: Callable[[Any], Any], worker: int) -> Callable[[Any], Any]:
        """What a worker makes a batch with, so that it also takes the delay.

        The worker sleeps: it holds back its batch, and takes no CPU from others.
        """
        slot = worker % MOST_WORKERS

        def slowed(indices: Any) -> Any:
            batch = fetch(indices)
            words = self._words
            if words[0] > 0:
                began = time.perf_counter_ns()
                time.sleep(words[0] / 1e9)
                words[1 + 2 * slot] += time.perf_counter_ns() - began
            words[2 + 2 * slot] += 1
            return batch

        return slowed


class WorkerDelay:
    """The workers together deliver later, by so much a step.

    With several workers each batch takes its worker as many times longer: they deliver in turn.

    Args:
        workers: that deliver in turn.
        asked: how many batches the program has asked for so far.
    """

    def __init__(
        self,
        file: DelayFile,
        seconds: float,
        workers: int,
        batches_per_step: float,
        asked: Callable[[], int],
    ) -> None:
        self._file, self._workers, self._asked = file, workers, asked
        self._of_batch_s = seconds * workers / batches_per_step
        self.given_s = 0.0

    def __call__(self) -> None:
        """Nothing is done in the process that trains."""

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Have the workers take it for their batches."""
        given_before, made_before = self._file.given()
        asked_before = self._asked()
        self._file.set(self._of_batch_s)
        try:
            yield
        finally:
            self._file.set(0.0)
            given, made = self._file.given()
            asked = self._asked() - asked_before
            of_batch_s = (given - given_before) / max(made - made_before, 1)
            self.given_s += of_batch_s * asked / self._workers

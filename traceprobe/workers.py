"""Parts of several files, each read in a process of its own where there are cores for that."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from pathlib import Path

from traceprobe.api import Options
from traceprobe.part import Lost, Part, read_or_lose

_CONTEXT = multiprocessing.get_context("spawn")  # polars has threads, which a fork would not copy
_ROUND_S = 0.2
"""Time between two looks at how far the files are."""

Job = tuple[int, Path, Options, Path | None]
"""Position of a file, the file, how to analyse it, and the folder of the cache."""
Fractions = ctypes.Array[ctypes.c_double]
_fractions: Fractions


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_all(
    paths: Sequence[Path],
    options: Options,
    folder: Path | None,
    jobs: int,
    progress: Callable[[int, float], None],
) -> list[Part | Lost]:
    """The parts of several files, read by up to `jobs` processes at once.

    A process that dies costs the file that it was reading.

    Args:
        folder: of the cache, if there is one.
        progress: called with the position of a file and the fraction of it that has been read.

    Raises:
        UnsupportedInput: one of them is no trace.
        UsageError: an option makes no sense.
    """
    waiting = deque(enumerate(paths))
    fractions = _CONTEXT.RawArray("d", len(paths))
    idle = [_process(fractions) for _ in range(min(jobs, len(paths)))]
    busy: dict[Future[Part | Lost], tuple[ProcessPoolExecutor, int]] = {}
    found: dict[int, Part | Lost] = {}
    with _ended(idle, busy):
        while len(found) < len(paths):
            while idle and waiting:
                position, path = waiting.popleft()
                job = (position, path, options, folder)
                executor, future = _submitted(idle.pop(), fractions, job)
                busy[future] = executor, position
            ended = wait(busy, _ROUND_S, return_when=FIRST_COMPLETED).done
            for _, position in busy.values():
                progress(position, fractions[position])
            for future in ended:
                executor, position = busy.pop(future)
                try:
                    found[position] = future.result()
                except BrokenProcessPool:
                    executor.shutdown()
                    executor = _process(fractions)
                    found[position] = died(paths[position].name)
                idle.append(executor)
                progress(position, 1.0)
    return [found[position] for position in range(len(paths))]


def _submitted(
    executor: ProcessPoolExecutor, fractions: Fractions, job: Job
) -> tuple[ProcessPoolExecutor, Future[Part | Lost]]:
    """A file given to a process, or to a new one if that has died since it read the last."""
    with uninterrupted():
        try:
            return executor, executor.submit(_read, *job)
        except BrokenProcessPool:
            executor = _process(fractions)
            return executor, executor.submit(_read, *job)


def _read(position: int, path: Path, options: Options, folder: Path | None) -> Part | Lost:
    def progress(done: int, total: int) -> None:
        _fractions[position] = min(done / max(total, 1), 1.0)

    return read_or_lose(path, options, folder, progress)


def died(name: str) -> Lost:
    """A file whose reader was killed."""
    return Lost(
        name,
        f"{name}: the process that read it was killed, as happens when memory runs out; read "
        "fewer files at once (--jobs) or cut the trace (traceprobe slice)",
    )


def _process(fractions: Fractions) -> ProcessPoolExecutor:
    """One process to read files in. A pool of several would not say which of them died."""
    return ProcessPoolExecutor(1, _CONTEXT, initializer=_begin, initargs=(fractions,))


def _begin(fractions: Fractions) -> None:
    """Prepare this process to read files, and to say how far it is in memory that all share."""
    global _fractions
    _fractions = fractions
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What is started here is not interrupted by Ctrl-C: its parent is, and ends it."""
    resource_tracker.ensure_running()  # its own start would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _ended(
    idle: list[ProcessPoolExecutor],
    busy: dict[Future[Part | Lost], tuple[ProcessPoolExecutor, int]],
) -> Iterator[None]:
    """End all processes afterwards, at once where something failed."""
    others = set(multiprocessing.active_children())
    try:
        yield
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        for executor in [*idle, *(executor for executor, _ in busy.values())]:
            executor.shutdown(cancel_futures=True)

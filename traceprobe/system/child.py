"""A Python process that does one job after the other for this one, and ends with it.

It is isolated, see `traceprobe.system.isolated`. Jobs come in at its standard input, what it has to
say goes out at its standard output; both are pipes that no other process has.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from types import FrameType
from typing import Any

from traceprobe.system import isolated

CODE = "from traceprobe.system.child import serve; serve()"
GRACE_S = 5.0
"""How long a process may take to remove its temporary files once it has been told to end."""
_STEP = 0.01
"""Least growth of the done fraction of a job that is told."""


class ChildEnded(Exception):
    """A child is gone; the message says how."""


@dataclass(frozen=True)
class Ready:
    """The child has begun."""


@dataclass(frozen=True)
class Progress:
    """The fraction of its job that is done."""

    fraction: float


@dataclass(frozen=True)
class Done:
    """What its job came to."""

    result: Any


@dataclass(frozen=True)
class Failed:
    """What its job raised."""

    error: Exception


class Child:
    """One process.

    Raises:
        ChildEnded: it cannot be started.
    """

    def __init__(self) -> None:
        jobs, self._jobs = Pipe(duplex=False)
        self._answers, answers = Pipe(duplex=False)
        try:
            with jobs, answers, sigint_blocked():
                self._process = subprocess.Popen(
                    isolated.command(CODE), stdin=jobs.fileno(), stdout=answers.fileno()
                )
        except OSError as error:
            self._close()
            raise ChildEnded(error.strerror or str(error)) from error

    def fileno(self) -> int:
        """That of the pipe with its answers, to wait for."""
        return self._answers.fileno()

    def give(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it call a function with the arguments and, last, one that tells the done fraction.

        Raises:
            ChildEnded: it is gone.
        """
        try:
            self._jobs.send((function, arguments))
        except OSError as error:
            raise ChildEnded(self._how()) from error

    def answer(self) -> Ready | Progress | Done | Failed:
        """The next thing that it says.

        Raises:
            ChildEnded: it is gone.
        """
        try:
            message: Ready | Progress | Done | Failed = self._answers.recv()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise ChildEnded(self._how()) from error
        return message

    def tell_to_end(self) -> None:
        """Let it clean up what it has begun, and end."""
        self._process.terminate()

    def end(self, seconds: float) -> None:
        """Wait for its end that long, then insist."""
        self._close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _how(self) -> str:
        self.end(GRACE_S)
        code = self._process.returncode
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def _close(self) -> None:
        self._jobs.close()
        self._answers.close()


@contextmanager
def children() -> Iterator[list[Child]]:
    """A list for children, which are ended in the end: at once where something failed."""
    started: list[Child] = []
    try:
        yield started
    except BaseException:
        for child in started:
            child.tell_to_end()
        raise
    finally:
        deadline = time.monotonic() + GRACE_S
        for child in started:
            child._close()
        for child in started:
            child.end(max(deadline - time.monotonic(), 0.0))


def wait_for_answers(started: Sequence[Child]) -> list[Child]:
    """Those that have something to say, or are gone; waits until there are some."""
    known = {child.fileno(): child for child in started}
    return [known[number] for number in wait(known) if isinstance(number, int)]


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """What is started here is not interrupted by Ctrl-C: its parent is, and ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve() -> None:
    """What the process itself does: jobs until there will be no more."""
    jobs = Connection(os.dup(0), writable=False)
    answers = Connection(os.dup(1), readable=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # what a library prints must not get between the answers
        os.dup2(nothing, number)
    signal.signal(signal.SIGTERM, _leave)
    due: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(jobs, due), daemon=True).start()
    _send(answers, Ready())
    while True:
        function, arguments = due.get()
        try:
            answer: Done | Failed = Done(function(*arguments, _teller(answers)))
        except SystemExit:
            raise
        except BaseException as error:  # a panic of polars is no Exception
            answer = Failed(_portable(error))
        _send(answers, answer)


def _receive(
    jobs: Connection, due: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]]
) -> None:
    """Hand on jobs; end this process when the one that gives them closes its end, or is gone."""
    with suppress(EOFError, OSError):
        while True:
            due.put(jobs.recv())
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def _leave(number: int, frame: FrameType | None) -> None:
    """Unwind once: a second signal must not interrupt what cleans up after the first."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _teller(answers: Connection) -> Callable[[float], None]:
    """A function that tells the done fraction, where it has grown enough."""
    reported = 0.0

    def tell(fraction: float) -> None:
        nonlocal reported
        if fraction >= reported + _STEP:
            reported = fraction
            _send(answers, Progress(fraction))

    return tell


def _send(answers: Connection, message: object) -> None:
    """Say it, or unwind where nobody listens any more: the process that asked is gone."""
    try:
        answers.send(message)
    except BrokenPipeError:
        sys.exit(1)


def _portable(error: BaseException) -> Exception:
    """An error that arrives as it was sent, if only in its words."""
    if not isinstance(error, Exception):
        return RuntimeError(f"{type(error).__name__}: {error}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

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
from multiprocessing.connection import Connection, Pipe, wait
from pickle import PickleBuffer
from types import FrameType
from typing import Any, NamedTuple

from traceprobe.system import isolated
from traceprobe.system.passed_memory import PassedMemory, fetched, widen

CODE = "from traceprobe.system.child import serve; serve()"
GRACE_S = 5.0
"""How long a process may take to remove its temporary files once it has been told to end."""
_STEP = 0.01
"""Least growth of the done fraction of a job that is told."""


class ChildEnded(Exception):
    """A child is gone; the message says how."""


class Ready(NamedTuple):
    """The child has begun."""


class Progress(NamedTuple):
    """The fraction of its job that is done."""

    fraction: float


class Done(NamedTuple):
    """What its job came to."""

    result: Any


class Failed(NamedTuple):
    """What its job raised."""

    error: Exception


class Child:
    """One process.

    Args:
        module: what it imports before it takes a job, if anything.

    Raises:
        ChildEnded: it cannot be started.
    """

    def __init__(self, module: str | None = None) -> None:
        code = CODE if module is None else f"import {module}; {CODE}"
        jobs, self._jobs = Pipe(duplex=False)
        self._answers, answers = Pipe(duplex=False)
        self._memory = PassedMemory()
        widen(answers.fileno())
        try:
            with jobs, answers, sigint_blocked():
                self._process = subprocess.Popen(
                    isolated.command(code),
                    stdin=jobs.fileno(),
                    stdout=answers.fileno(),
                    pass_fds=self._memory.inherited,
                )
        except OSError as error:
            self.close()
            raise ChildEnded(error.strerror or str(error)) from error

    def fileno(self) -> int:
        """That of the pipe with its answers, to wait for."""
        return self._answers.fileno()

    def give(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it call a function with the arguments and, last, one that tells the done fraction.

        Of what it has been given, it may have no more than `passed_memory.SLOTS` to do.

        Raises:
            ChildEnded: it is gone.
        """
        long: list[PickleBuffer] = []
        job = pickle.dumps((function, arguments), protocol=5, buffer_callback=long.append)
        try:
            self._jobs.send((job, self._memory.put(long)))
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

    def wait(self, seconds: float) -> None:
        """Wait for its end that long, then insist. Its pipes stay: another thread may use them."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Give it no more jobs, and hear no more answers: it ends when it has noticed."""
        self._jobs.close()
        self._answers.close()
        self._memory.close()

    def _how(self) -> str:
        self.close()
        self.wait(GRACE_S)
        code = self._process.returncode
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


@contextmanager
def children() -> Iterator[list[Child]]:
    """A list for children, which are ended in the end: at once where something failed.

    By then no other thread may listen to them.
    """
    started: list[Child] = []
    try:
        yield started
    except BaseException:
        for child in started:
            child.tell_to_end()
        raise
    finally:
        for child in started:
            child.close()
        _wait_for_all(started)


def end_all(started: Sequence[Child]) -> None:
    """End children that other threads listen to: those hear that they are gone."""
    for child in started:
        child.tell_to_end()
    _wait_for_all(started)


def _wait_for_all(started: Sequence[Child]) -> None:
    deadline = time.monotonic() + GRACE_S
    for child in started:
        child.wait(max(deadline - time.monotonic(), 0.0))


def wait_for_answers(started: Sequence[Child], seconds: float | None = None) -> list[Child]:
    """Those that have something to say, or are gone; waits until there are some, or so long."""
    known = {child.fileno(): child for child in started}
    return [known[number] for number in wait(known, seconds) if isinstance(number, int)]


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
            _send(answers, Done(function(*arguments, _teller(answers))))
        except SystemExit:
            raise
        except BaseException as error:  # a panic of polars is no Exception
            _send(answers, Failed(_portable(error)))


def _receive(
    jobs: Connection, due: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]]
) -> None:
    """Hand on jobs; end this process when the one that gives them closes its end, or is gone.

    So does a job that cannot be unpickled here: nobody would answer it.
    """
    try:
        with suppress(EOFError, OSError):
            while True:
                job, places = jobs.recv()
                due.put(pickle.loads(job, buffers=[fetched(place) for place in places]))
    finally:
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which comes for the same reason
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

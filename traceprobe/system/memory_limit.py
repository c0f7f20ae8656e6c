"""Under a limit of memory (`ulimit -v`) the command runs in a process that may die.

A library whose request for memory is refused may raise an error. It may also end the process, as
those in Rust do, or crash, and nobody in that process can say so. So a process that holds nothing
starts the one that works, hands signals on to it, and tells how it ended.
"""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

REFUSED = 2
"""Exit code, as for an input that cannot be read."""
ADVICE = "allow more, read fewer files at once (--jobs), or cut the trace (traceprobe slice)"
_DEATHS = {signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}
_ORDERS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
_SET_PARENT_DEATH_SIGNAL = 1


def memory_limit() -> int | None:
    """Bytes of memory that a process may have; None where there is no limit."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((number for number in limits if number != resource.RLIM_INFINITY), default=None)


def memory_message() -> str:
    """What is said where memory ran out."""
    known = memory_limit()
    where = "" if known is None else f" below the limit of {known >> 20} MiB (ulimit -v)"
    return f"memory ran out{where}; {ADVICE}"


def is_refused_memory(error: BaseException) -> bool:
    """Whether an error is that of memory that was refused.

    Under a limit that is also what a panic or a library that cannot be loaded comes from, where
    they do not come from it without.
    """
    if isinstance(error, MemoryError):
        return True
    odd = isinstance(error, ImportError) or not isinstance(error, Exception)
    odd = odd or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    return memory_limit() is not None and odd


def run_under_memory_limit(command: Callable[[], None]) -> None:
    """Call a command; under a limit in a process of its own, with which this one ends."""
    if memory_limit() is None or sys.platform != "linux":
        command()
        return
    known = signal.pthread_sigmask(signal.SIG_BLOCK, {*_ORDERS, signal.SIGCHLD})
    this = os.getpid()
    left, leaves = os.pipe()
    worker = os.fork()
    if worker:
        os.close(leaves)
        code = _status(worker)
        _end_as(code, in_order=bool(os.read(left, 1)))
    try:
        os.close(left)
        _die_with(this)
        signal.pthread_sigmask(signal.SIG_SETMASK, known)
        command()
    except (MemoryError, ImportError):
        _say(memory_message())
        sys.exit(REFUSED)
    finally:
        os.write(leaves, b".")


def _status(worker: int) -> int:
    """How it ends. Until then it gets the signals that come; those of a terminal it has already."""
    while True:
        came = signal.sigwaitinfo({*_ORDERS, signal.SIGCHLD})
        if came.si_signo != signal.SIGCHLD:
            if came.si_pid:
                os.kill(worker, came.si_signo)
            continue
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _end_as(code: int, *, in_order: bool) -> NoReturn:
    """End this process as the other did, or tell what it died of.

    Args:
        in_order: whether Python itself ended it. Else a library did, which may call `exit(1)`.
    """
    if -code in _DEATHS or (code >= 0 and not in_order):
        _say(memory_message())
        code = REFUSED
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"traceprobe: {text}\n".encode())


def _die_with(parent: int) -> None:
    """Even the process that waits may be killed."""
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(REFUSED)

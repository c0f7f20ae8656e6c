"""The command line: arguments to library calls to exit codes; no logic of its own.

Exit codes: 0 done, 1 a gate that was asked for, a check of `doctor` or a rung of `sweep` failed, 2
usage error or unreadable input, 70 an error of traceprobe itself (EX_SOFTWARE of sysexits.h), 130
interrupted, 129 and 143 ended by SIGHUP and SIGTERM.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from traceprobe.cli.app import app
from traceprobe.cli.console import fail
from traceprobe.cli.signals import ended_in_order
from traceprobe.system import memory_limit as bounded

__all__ = ["app", "main", "program"]

INTERNAL = 70
ISSUES = "https://github.com/traceprobe/traceprobe/issues"


def program() -> None:
    """Run the command line in a process of its own."""
    for number in range(3):  # a file that is opened must not become one of the standard streams
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    main()


def main() -> None:
    """Run the command line and exit."""
    try:
        with ended_in_order():
            _check_threads()
            app()
    except KeyboardInterrupt:
        fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); there is nobody left to tell.
        if sys.stderr is not None:
            sys.stderr.close()
        sys.exit(2)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of polars is no Exception
        if bounded.is_refused_memory(error):
            what = "" if isinstance(error, MemoryError) else f" ({type(error).__name__}: {error})"
            fail(bounded.memory_message() + what)
        from traceprobe.errors import InternalError, TraceprobeError, system_message

        if isinstance(error, InternalError):
            fail(*str(error).split("\n"), f"at {ISSUES}", code=INTERNAL)
        if isinstance(error, TraceprobeError):
            fail(*_lines(error))
        if isinstance(error, OSError):
            if not error.filename and _without_folder():
                fail("the current folder is gone; change to one that exists")
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{system_message(error)}")
        fail(
            f"internal error: {type(error).__name__}: {error}",
            f"please report it at {ISSUES}; `traceprobe inspect --anonymise` makes a copy of the "
            "trace that can be attached",
            code=INTERNAL,
        )


def _check_threads() -> None:
    """Refuse a number of threads with which polars panics, as batch systems without a core set."""
    threads = os.environ.get("POLARS_MAX_THREADS")
    if threads is not None and not re.fullmatch(r"0*[1-9][0-9]{0,3}", threads):
        fail(
            f"POLARS_MAX_THREADS={threads[:60]}: is no number of threads; set the variable to 1 or "
            "more, or unset it"
        )


def _lines(error: BaseException) -> list[str]:
    """One line, since a name may hold line feeds; only what a program said last has its own."""
    from traceprobe.capture.process.launch import RecordingFailed

    return str(error).split("\n") if isinstance(error, RecordingFailed) else [str(error)]


def _without_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False

"""The command line: arguments to library calls to exit codes; no logic of its own.

Exit codes: 0 done, 1 a gate that was asked for or a check of `doctor` failed, 2 usage error or
unreadable input, 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import sys

from traceprobe.cli.app import app
from traceprobe.cli.console import fail

__all__ = ["app", "main", "program"]

ISSUES = "https://github.com/traceprobe/traceprobe/issues"


def program() -> None:
    """Run the command line in a process of its own.

    It imports big libraries and ends soon after: looking for cycles among their objects, while
    they are imported and once more at the end, takes longer than reading a small trace.
    """
    gc.disable()
    atexit.register(gc.freeze)
    main()


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); there is nobody left to tell.
        sys.stderr.close()
        sys.exit(2)
    except Exception as error:
        from traceprobe.model import TraceprobeError

        if isinstance(error, TraceprobeError):
            fail(str(error))
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")
        from traceprobe.invariants import InternalError

        if isinstance(error, InternalError):
            fail(f"{error}\nat {ISSUES}")
        fail(
            f"internal error: {type(error).__name__}: {error}\nplease report it at {ISSUES}; "
            "`traceprobe inspect --anonymise` makes a copy of the trace that can be attached"
        )

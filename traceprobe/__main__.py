"""`traceprobe`, and `python -m traceprobe`."""

from traceprobe.system.isolated import leave_working_folder

# What else is imported is imported once that is done.


_ALLOCATOR = "_RJEM_MALLOC_CONF"
_BRIEFLY = "dirty_decay_ms:50,muzzy_decay_ms:0"


def program() -> None:
    """Run the command line; before anything else is imported, the working folder is left out.

    The process imports big libraries and ends soon after: looking for cycles among their objects,
    while they are imported and once more at the end, takes longer than reading a small trace.

    Polars' allocator keeps what is freed for half a second, in which an analysis asks for other
    sizes: a tenth of its memory. What the user has told the allocator comes last, and counts.
    """
    leave_working_folder()
    import atexit
    import gc
    import os

    os.environ[_ALLOCATOR] = ",".join(filter(None, (_BRIEFLY, os.environ.get(_ALLOCATOR))))
    gc.disable()
    atexit.register(gc.freeze)
    from traceprobe.system.memory_limit import run_watched

    run_watched(_run)


def _run() -> None:
    from traceprobe.cli import program as run

    run()


if __name__ == "__main__":
    program()

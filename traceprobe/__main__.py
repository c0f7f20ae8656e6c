"""`traceprobe`, and `python -m traceprobe`."""

from traceprobe.system.isolated import leave_working_folder

# What else is imported is imported once that is done.


def program() -> None:
    """Run the command line; before anything else is imported, the working folder is left out.

    The process imports big libraries and ends soon after: looking for cycles among their objects
    while they are imported, and taking them apart at the end, takes longer than reading a small
    trace.
    """
    leave_working_folder()
    import gc

    gc.disable()
    from traceprobe.system.at_end import ended_at_once
    from traceprobe.system.memory_limit import run_under_memory_limit

    with ended_at_once():
        run_under_memory_limit(_run)


def _run() -> None:
    from traceprobe.cli import program as run

    run()


if __name__ == "__main__":
    program()

"""`traceprobe`, and `python -m traceprobe`."""

from traceprobe.isolated import leave_working_folder


def program() -> None:
    """Run the command line; before anything else is imported, the working folder is left out."""
    leave_working_folder()
    from traceprobe.cli import program as run

    run()


if __name__ == "__main__":
    program()

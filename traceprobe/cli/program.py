"""The program that a command runs: a built-in workload, or what the user wrote after `--`."""

from __future__ import annotations

from pathlib import Path

from traceprobe.errors import UsageError


def chosen(workload: str | None, extra: list[str], command: str) -> tuple[list[str], str]:
    """Command line and name of the program.

    Args:
        extra: the workload's settings, or the program.
        command: of traceprobe, for the message.

    Raises:
        UsageError: neither is given, or PyTorch is missing.
    """
    from traceprobe.capture.naming import name_of
    from traceprobe.capture.program import interpreter
    from traceprobe.capture.program import workload as script_of

    if workload is not None:
        return [interpreter(), str(script_of(workload)), *extra], workload
    if extra and not extra[0].startswith("-"):
        return extra, name_of(extra)
    raise UsageError(
        f"nothing to run: name a --workload, or write the program after --, as in "
        f"`traceprobe {command} -- python train.py`"
    )


def named(program: list[str]) -> list[Path]:
    """Files that a command line names; outputs must not overwrite them."""
    return [path for path in map(Path, program) if path.is_file()]

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
    from traceprobe.capture.program import torch_interpreter
    from traceprobe.capture.program import workload_script as script_of
    from traceprobe.capture.program_name import program_name

    if workload is not None:
        return [torch_interpreter(), str(script_of(workload)), *extra], workload
    if extra and not extra[0].startswith("-"):
        return extra, program_name(extra)
    raise UsageError(
        f"nothing to run: name a --workload, or write the program after --, as in "
        f"`traceprobe {command} -- python train.py`"
    )


def named(program: list[str]) -> list[Path]:
    """Files that a command line names; outputs must not overwrite them."""
    return [path for path in map(Path, program) if path.is_file()]

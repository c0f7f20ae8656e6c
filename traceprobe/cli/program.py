"""The program that a command runs: a built-in workload, or what the user wrote after `--`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from traceprobe.errors import UsageError


def chosen(workload: str | None, extra: list[str], command: str) -> tuple[list[str], str]:
    """Command line and name of the program.

    Args:
        extra: the workload's settings, or the program.
        command: of traceprobe, for the message.

    Raises:
        UsageError: neither is given, the program is a script without its interpreter, or PyTorch is
            missing.
    """
    from traceprobe.capture.process.program import torch_interpreter
    from traceprobe.capture.process.program import workload_script as script_of
    from traceprobe.capture.process.program_name import program_name

    if workload is not None:
        return [torch_interpreter(), str(script_of(workload)), *extra], workload
    if extra and not extra[0].startswith("-"):
        if _is_bare_script(extra[0]):
            raise UsageError(
                f"{extra[0]}: is a script, which its interpreter starts: "
                f"`traceprobe {command} -- {shlex.join(['python', *extra])}`"
            )
        return extra, program_name(extra)
    raise UsageError(
        f"nothing to run: name a --workload, or write the program after --, as in "
        f"`traceprobe {command} -- python train.py`"
    )


def _is_bare_script(name: str) -> bool:
    """Whether a name is that of a Python file which the shell could not start either."""
    return name.endswith((".py", ".pyw")) and Path(name).is_file() and shutil.which(name) is None


def named(program: list[str]) -> list[Path]:
    """Files that a command line names; outputs must not overwrite them."""
    return [path for path in map(Path, program) if path.is_file()]

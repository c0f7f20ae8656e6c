"""Running the program to be recorded, and cleaning up after it however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from traceprobe.capture.plan import refusal, told
from traceprobe.capture.supervised import Supervised, SupervisorLost
from traceprobe.capture.supervisor import ERR
from traceprobe.errors import TraceprobeError

LAST_LINES = 12
LAST_BYTES = 64 << 10
"""Of a log that are read: a program may write gigabytes."""
LONGEST_LINE = 1_000
_RUN = (
    "import sys, runpy; sys.path[:] = [folder for folder in sys.path if folder]; "
    "runpy.run_module('torch.distributed.run', run_name='__main__', alter_sys=True)"
)
"""As `python -m` does it, but nothing is imported from the current folder."""
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)(?:.*?exitcode\s*:\s*(-?\d+))?", re.DOTALL)
_BY_SIGNAL = 128
"""What shells, and nsys, add to the number of the signal that killed their child."""


class RecordingFailed(TraceprobeError):
    """The program ended without a recording.

    Args:
        message: for the person at the terminal; may hold the last lines of the program.
        kind: what records may hold of it: nothing that the program said. The message without it.
    """

    def __init__(self, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = message if kind is None else kind


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Args:
        how: in words, with the exit status or the signal; None where it succeeded.
        said: the last lines of the process that failed.
    """

    how: str | None
    said: str = ""

    @property
    def message(self) -> str:
        """How it failed, with its last lines."""
        return f"{self.how}; its last lines:\n{self.said}" if self.said else str(self.how)

    def expect_success(self) -> None:
        """Pass a failure on.

        Raises:
            RecordingFailed: the program failed, with its last lines.
        """
        if self.how is not None:
            raise RecordingFailed(self.message, self.how)


def distributed(python: str, program: list[str], processes: int, folder: Path) -> list[str]:
    """The program under `torch.distributed.run`, one process a rank, each with its own log.

    Args:
        python: the program's own interpreter, whose PyTorch starts the ranks.
    """
    return [
        *(python, "-c", _RUN, "--standalone", f"--nproc-per-node={processes}"),
        *(f"--log-dir={folder / 'logs'}", "--redirects=3", "--no-python", *program),
    ]


def run(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> Ended:
    """Run a command to its end. Whatever happens, nothing that it started stays.

    Args:
        on_state: told what rank 0 is doing.
        on_note: told of processes that cannot be ended.

    Raises:
        OSError: it cannot be started.
        RecordingFailed: it refuses to be recorded, and says why.
        KeyboardInterrupt: passed on, after every process of the program is gone.
    """
    running = Supervised(command, environment, folder, on_note=on_note)
    try:
        with running as process:
            _watch(process, folder, on_state)
        code = running.code
    except (OSError, SupervisorLost) as error:
        if (reason := refusal(folder)) is not None:
            raise RecordingFailed(reason) from error
        if isinstance(error, OSError):
            raise
        raise RecordingFailed(str(error)) from error
    if (reason := refusal(folder)) is not None:
        raise RecordingFailed(reason)
    return _ended(code, folder)


def _watch(process: subprocess.Popen[bytes], folder: Path, on_state: Callable[[str], None]) -> None:
    seen = 0
    while process.poll() is None:
        time.sleep(0.1)
        states = told(folder, 0)
        for state in states[seen:]:
            on_state(state)
        seen = len(states)


def _ended(code: int, folder: Path) -> Ended:
    if not code:
        return Ended(None)
    text = _end_of(folder / ERR)
    who = "the program"
    found = _ROOT_CAUSE.search(text)
    if found:
        logs = sorted(folder.glob(f"logs/**/{found[1]}/stderr.log"))
        text = _end_of(logs[-1]) if logs else text
        who, code = f"rank {found[1]}", int(found[2] or code)
    lines = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    # Behind a bar, for no line of a program may be one that a CI system takes for a command.
    return Ended(f"{who} {_how(code)}", "\n".join(f"    | {_short(line)}" for line in lines))


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(-min(LAST_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read(LAST_BYTES).decode("utf-8", "replace")


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal(-code)}"
    if code - _BY_SIGNAL in signal.valid_signals():
        return f"ended with status {code}, as after {_signal(code - _BY_SIGNAL)}"
    return f"ended with status {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"

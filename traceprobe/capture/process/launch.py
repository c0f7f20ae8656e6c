"""Running the program to be recorded, and cleaning up after it however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from traceprobe.capture.process.program import python_interpreter
from traceprobe.capture.process.program_output import MOST_BYTES, OutputFollower, barred
from traceprobe.capture.process.progress import all_go_on, refusal, reported_states
from traceprobe.capture.process.supervised import SupervisedProcess, SupervisorLost
from traceprobe.capture.process.supervisor import ERR, OUT
from traceprobe.errors import TraceprobeError

LAST_LINES = 12
TOLD_S, PATIENCE_S = 10.0, 300.0
"""From when all ranks were asked to end until it is said that they go on, and until they are ended:
one may write a checkpoint on its way out, or catch `SystemExit` and train for days."""
_TORCHRUN = (
    "import sys, runpy; sys.path[:] = [folder for folder in sys.path if folder]; "
    "runpy.run_module('torch.distributed.run', run_name='__main__', alter_sys=True)"
)
"""As `python -m` does it, but nothing is imported from the current folder."""
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)(?:.*?exitcode\s*:\s*(-?\d+))?", re.DOTALL)
_BY_SIGNAL = 128
"""What shells, and nsys, add to the number of the signal that killed their child."""


def unseen(line: str) -> None:
    """Nobody wants to see what the program writes."""


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
class ProgramEnd:
    """How a program ended.

    Args:
        failure: in words, with the exit status or the signal; None where it succeeded.
        last_lines: of the process that failed, one text; empty where they were shown and it is
            clear whose they are.
        rank: the one that failed first, where a launcher says so.
    """

    failure: str | None
    last_lines: str = ""
    rank: int | None = None

    @property
    def message(self) -> str:
        """How it failed, with its last lines."""
        if not self.last_lines:
            return str(self.failure)
        return f"{self.failure}; its last lines:\n{self.last_lines}"

    def expect_success(self) -> None:
        """Pass a failure on.

        Raises:
            RecordingFailed: the program failed, with its last lines.
        """
        if self.failure is not None:
            raise RecordingFailed(self.message, self.failure)

    def note_failure(self, complete: str, on_note: Callable[[str], None]) -> None:
        """Say how the program failed although what it was started for was complete by then.

        Args:
            complete: that, as the beginning of a sentence: "the recording was complete".
        """
        if self.failure is not None:
            on_note(f"{complete} when {self.message}")


def rank_command(program: list[str], processes: int | None, folder: Path | None) -> list[str]:
    """Command line that starts every rank: the program itself, or torch.distributed.run on it.

    There each rank is a process of its own. The program's own interpreter starts them, for its
    PyTorch does it.

    Args:
        processes: ranks to start on this machine; None for the program as it is.
        folder: where each rank has a log; None for ranks that write where this process does.

    Raises:
        UsageError: ranks were asked for of what is no Python script.
    """
    if processes is None:
        return program
    # Into logs of their own and, with the rank before each line, to the one of the launcher.
    logs = [] if folder is None else [f"--log-dir={folder / 'logs'}", "--tee=3"]
    return [
        *(python_interpreter(program), "-c", _TORCHRUN, "--standalone"),
        *(f"--nproc-per-node={processes}", *logs, "--no-python", *program),
    ]


def run_program(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
    on_output: Callable[[str], None] = unseen,
    patience: float | None = PATIENCE_S,
) -> ProgramEnd:
    """How a command ended. Whatever happens, nothing that it started stays.

    Args:
        on_state: called with what rank 0 is doing.
        on_note: called with processes that cannot be ended, and where the command was ended as it
            went on.
        on_output: called with the lines that the program writes, as they are shown.
        patience: seconds from when all ranks were asked to end until the command is ended; None
            waits for as long as it takes, as for a profiler that writes its report then.

    Raises:
        OSError: it cannot be started.
        RecordingFailed: it refuses to be recorded, and says why.
        KeyboardInterrupt: passed on, after every process of the program is gone.
    """
    on_state("starting")
    supervised = SupervisedProcess(command, environment, folder, on_note=on_note)
    output = OutputFollower([folder / OUT, folder / ERR], on_output)
    try:
        with supervised as process:
            ends = _watch(process, folder, on_state, output, patience)
        output.finish()
        code = supervised.exit_code if ends else 0
    except (OSError, SupervisorLost) as error:
        if (reason := refusal(folder)) is not None:
            raise RecordingFailed(reason) from error
        if isinstance(error, OSError):
            raise
        raise RecordingFailed(str(error)) from error
    if (reason := refusal(folder)) is not None:
        raise RecordingFailed(reason)
    if not ends:
        on_note(f"the program went on for {patience:.0f} s after its last step, and was ended")
    end = _program_end(code, folder)
    told = on_output is not unseen and end.rank is None
    return replace(end, last_lines="") if told else end


def _watch(
    process: subprocess.Popen[bytes],
    folder: Path,
    on_state: Callable[[str], None],
    output: OutputFollower,
    patience: float | None,
) -> bool:
    """Follow a process until it ends; False where it does not, though it was asked to."""
    seen = 0
    asked, told = None, False
    while process.poll() is None:
        time.sleep(0.1)
        output.poll()
        states = reported_states(folder, 0)
        for state in states[seen:]:
            on_state(state)
        seen = len(states)
        if patience is None or not all_go_on(folder):
            asked = None
            continue
        asked = asked or time.monotonic()
        waited = time.monotonic() - asked
        if waited > patience:
            return False
        if waited > TOLD_S and not told:
            told = True
            on_state("waiting for the program to end")
    return True


def _program_end(code: int, folder: Path) -> ProgramEnd:
    if not code:
        return ProgramEnd(None)
    text = _end_of_log(folder / ERR)
    process, rank = "the program", None
    root_cause = _ROOT_CAUSE.search(text)
    if root_cause:
        logs = sorted(folder.glob(f"logs/**/{root_cause[1]}/stderr.log"))
        text = _end_of_log(logs[-1]) if logs else text
        rank, code = int(root_cause[1]), int(root_cause[2] or code)
        process = f"rank {rank}"
    lines = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    last_lines = "\n".join(map(barred, lines))
    return ProgramEnd(f"{process} {cause_of_exit(code)}", last_lines, rank)


def _end_of_log(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(-min(MOST_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def cause_of_exit(code: int) -> str:
    """How a process ended that did not succeed, by its exit status; negative for a signal."""
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    if code - _BY_SIGNAL in signal.valid_signals():
        return f"ended with status {code}, as after {_signal_name(code - _BY_SIGNAL)}"
    return f"ended with status {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"

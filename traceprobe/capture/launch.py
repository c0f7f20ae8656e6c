"""Running the program to be recorded, and cleaning up after it however it ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from traceprobe.model import TraceprobeError

GRACE_S = 5.0
LAST_LINES = 12
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
_SET_PARENT_DEATH_SIGNAL = 1


class RecordingFailed(TraceprobeError):
    """The program ended without a trace; the message holds its last lines."""


def distributed(program: list[str], processes: int, folder: Path) -> list[str]:
    """The program under `torch.distributed.run`, one process a rank, each with its own log."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={processes}", f"--log-dir={folder / 'logs'}", "--redirects=3"),
        *program,
    ]


def run(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    on_state: Callable[[str], None],
) -> None:
    """Run a command to its end, telling `on_state` what rank 0 is doing.

    Raises:
        RecordingFailed: it ended with an error, with the last lines of the rank that failed.
        KeyboardInterrupt: passed on, after every process of the program is gone.
    """
    out, err = folder / "stdout.log", folder / "stderr.log"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        try:
            _watch(child, folder / "rank0.progress", on_state)
        finally:
            _end(child)
    if child.returncode:
        raise RecordingFailed(_explain(child.returncode, folder, err))


def _watch(child: subprocess.Popen[bytes], progress: Path, on_state: Callable[[str], None]) -> None:
    seen = 0
    while child.poll() is None:
        time.sleep(0.1)
        states = progress.read_text().splitlines() if progress.exists() else []
        for state in states[seen:]:
            on_state(state)
        seen = len(states)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave no process of the group behind: ask, wait, then insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        except PermissionError:  # only zombies are left
            break
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and _alive(child):
            time.sleep(0.05)
    child.wait()


def _alive(child: subprocess.Popen[bytes]) -> bool:
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _die_with_parent() -> None:
    """If traceprobe itself is killed, the program it started must not train on."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _explain(code: int, folder: Path, stderr: Path) -> str:
    text = stderr.read_text(errors="replace")
    found = _ROOT_CAUSE.search(text)
    who = "the program"
    if found:
        logs = sorted(folder.glob(f"logs/**/{found[1]}/stderr.log"))
        text = logs[-1].read_text(errors="replace") if logs else text
        who = f"rank {found[1]}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    if found and not text.strip():
        how = "was killed" if "Signal" in stderr.read_text(errors="replace") else how
    lines = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    said = "\n".join(f"    {line}" for line in lines)
    return f"{who} {how}" + (f"; its last lines:\n{said}" if said else "")

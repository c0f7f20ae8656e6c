"""Time and memory of a whole process and what it starts. Linux only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Cost:
    """What one process took.

    Args:
        seconds: wall time. cpu_seconds: of the process and its children, in user and system mode.
        peak_bytes: the most memory at once. Of a process alone this is the kernel's own maximum of
            its resident set; where it has children, the sum of their proportional sets, sampled ten
            times a second.
        failed: why it did not end well, None where it did.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    failed: str | None = None


def measure(
    command: list[str], folder: Path, environment: Mapping[str, str], timeout_s: float
) -> Cost:
    """Run one process in `folder` to its end.

    Linux counts the parent's memory at a child's start as the child's: keep this process small.
    """
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_inherited(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        late = threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        ended = threading.Event()
        tree = [0]
        sampler = threading.Thread(target=_sample, args=(process.pid, ended, tree))
        sampler.start()
        try:
            # Left as a zombie, the process keeps its number: the timer cannot hit another one.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.perf_counter() - started
        except BaseException:  # an interrupt does not reach a session of its own
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            late.cancel()
            ended.set()
            late.join()
            sampler.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        failed = None
        if process.returncode:
            output.seek(0)
            failed = (
                f"exit {process.returncode}{_last_words(output.read().decode(errors='replace'))}"
            )
        if seconds >= timeout_s:
            failed = f"stopped after {timeout_s:.0f} s"
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(seconds, cpu, max(usage.ru_maxrss * 1024, tree[0]), failed)


def _inherited() -> dict[str, str]:
    """This environment, but with compiled modules kept, as they are where a tool is installed."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _last_words(output: str) -> str:
    """The end of what a process said, fit for a cell of a table."""
    lines = [line.strip(" \t│|") for line in output.splitlines() if re.search("[A-Za-z]", line)]
    return f": {lines[-1][:60]}".replace("|", "/") if lines else ""


def _sample(pid: int, ended: threading.Event, peak: list[int]) -> None:
    while not ended.wait(_SAMPLE_S):
        processes = _descendants(pid)
        if len(processes) > 1:
            peak[0] = max(peak[0], sum(map(_proportional_bytes, processes)))


def _descendants(pid: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found += _descendants(int(child))
    return found


def _proportional_bytes(pid: int) -> int:
    """Resident memory, where pages that several processes share count in parts."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0

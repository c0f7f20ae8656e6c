"""A real run of a program, as it would be without us, while its processes note what happens.

The program has the streams and the terminal of this process. It outlives this process where that is
killed, for it is the program that matters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from traceprobe.capture.process.environment import program_environment
from traceprobe.capture.process.launch import cause_of_exit, rank_command
from traceprobe.capture.watch.watch_plan import WatchPlan
from traceprobe.system.signals import handled

TICK_S = 1.0
"""Between two looks at how far the program is."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class WatchedEnd:
    """How a watched program ended.

    Args:
        code: its exit code; negative for a signal.
        seconds: from start to end.
        signals: that this process got and passed on, by name.
    """

    code: int
    seconds: float
    signals: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a shell would say."""
        return self.code if self.code >= 0 else 128 - self.code

    @property
    def words(self) -> str:
        """How it ended, for people."""
        asked = f" after {' and '.join(self.signals)}" if self.signals else ""
        if not self.code:
            return f"ended by itself{asked}"
        ended = cause_of_exit(self.code)
        return ended if all(name in ended for name in self.signals) else f"{ended}{asked}"


def run_watched(
    program: list[str],
    plan: WatchPlan,
    processes: int | None,
    work: Path,
    on_tick: Callable[[], None],
) -> WatchedEnd:
    """Run a program to its own end.

    Signals that end programs are passed on to it and end nothing here: what it left is to be told.

    Args:
        plan: its folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
        work: folder that takes what the processes note.
        on_tick: called about once a second.

    Raises:
        OSError: it cannot be started.
        UsageError: ranks were asked for of what is no Python script.
    """
    plan = replace(plan, folder=str(work), watcher=os.getpid())
    command = rank_command(program, processes, None)
    environment = _environment(plan)
    began = time.monotonic()
    signals: list[str] = []
    with subprocess.Popen(command, env=environment) as process, _passed_on(process, signals):
        while True:
            try:
                code = process.wait(TICK_S)
                break
            except subprocess.TimeoutExpired:
                on_tick()
    return WatchedEnd(code, time.monotonic() - began, tuple(dict.fromkeys(signals)))


def _environment(plan: WatchPlan) -> Mapping[str, str]:
    """Only what starts the watching is added: the run is to be as it would be."""
    ours = {plan.VARIABLE, "PYTHONPATH"}
    wanted = program_environment(plan.VARIABLE, plan.save())
    return {name: value for name, value in wanted.items() if name in os.environ or name in ours}


def _passed_on(process: subprocess.Popen[bytes], seen: list[str]) -> AbstractContextManager[None]:
    """While this lasts, signals go to the program; it gets those of a terminal's keys by itself."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        seen.append(signal.Signals(number).name)
        if number != signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    return handled(_PASSED_ON, pass_on)


def _in_foreground() -> bool:
    """Whether Ctrl-C of the terminal goes to this process and the program alike."""
    if sys.__stdin__ is None:
        return False
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False

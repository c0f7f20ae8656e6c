"""Commands under a supervisor: nothing that they started stays, however this process ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from traceprobe.capture.program import cleaning_up
from traceprobe.capture.supervisor import END, GRACE_S, LIMIT_S, LINGER_S
from traceprobe.errors import TraceprobeError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PATIENCE_S = 2 * (LINGER_S + GRACE_S + LIMIT_S)
"""Longer than a supervisor takes that works."""


class SupervisorLost(TraceprobeError):
    """The supervisor was killed, and nobody knows what became of the command."""


def _tell(message: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{message.encode('ascii', 'backslashreplace').decode()}\n")


class Supervised:
    """A command that runs for as long as the block lasts; it is ended with all that it started.

    Args:
        folder: where its output goes, see `traceprobe.capture.supervisor`; removed where this
            process is killed. Without one it has the streams of the supervisor.
        streams: standard output and standard error of the supervisor, as `subprocess.Popen` takes
            them.
        on_note: told of processes that cannot be ended.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        streams: tuple[int | None, int | None] = (None, None),
        on_note: Callable[[str], None] = _tell,
    ) -> None:
        self._command, self._environment, self._folder = command, environment, folder
        self._streams, self._on_note = streams, on_note
        self._answer: dict[str, Any] = {}

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._line, theirs = socket.socketpair()
        try:
            with theirs:
                number, folder = theirs.fileno(), str(self._folder or "")
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", str(_SUPERVISOR), str(number), folder),
                        *self._command,
                    ],
                    env=dict(self._environment),
                    stdin=subprocess.DEVNULL,
                    stdout=self._streams[0],
                    stderr=self._streams[1],
                    pass_fds=[number],
                    start_new_session=True,
                )
        except BaseException:
            self._line.close()
            raise
        return self._process

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with cleaning_up(), self._line:
            self._end()
        for name in self._answer.get("left", []):
            self._on_note(f"traceprobe: cannot end {name}")

    @property
    def code(self) -> int:
        """Of the main process, after the block; negative for a signal.

        Raises:
            OSError: it could not be started.
            SupervisorLost: nobody knows.
        """
        answer = self._answer
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        if answer.get("code") is None:
            raise SupervisorLost("the process that watches over the program was killed")
        return int(answer["code"])

    def _end(self) -> None:
        """Ask the supervisor to end, where it has not, and take its answer."""
        answer = b""
        self._line.settimeout(_PATIENCE_S)
        with suppress(OSError):  # it has gone, or takes longer than it may
            self._line.sendall(END)
        with suppress(OSError):
            while block := self._line.recv(65536):
                answer += block
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answer = json.loads(answer) if answer else {}


@dataclass(frozen=True)
class Said:
    """What a command said.

    Args:
        code: how it ended, negative for a signal; None where it took longer than it may.
    """

    code: int | None
    out: bytes
    err: bytes


def ask(command: list[str], seconds: float | None = None) -> Said:
    """Run a command for what it says.

    Args:
        seconds: how long it may take; it is ended then.

    Raises:
        OSError: it cannot be started.
        SupervisorLost: nobody knows how it ended.
    """
    running = Supervised(command, os.environ, streams=(subprocess.PIPE, subprocess.PIPE))
    late = False
    with running as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = True
    if late:
        try:
            out, err = process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired as still:  # somebody who cannot be ended holds the pipes
            out, err = still.stdout or b"", still.stderr or b""
    return Said(None if late else running.code, out, err)


def show(command: list[str]) -> int:
    """Run a command that writes where this process does; returns how it ended.

    Raises:
        OSError: it cannot be started.
        SupervisorLost: nobody knows how it ended.
    """
    running = Supervised(command, os.environ)
    with running as process:
        process.wait()
    return running.code

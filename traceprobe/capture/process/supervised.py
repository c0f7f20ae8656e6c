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
from typing import Any

from traceprobe.capture.process.program import sigint_ignored
from traceprobe.capture.process.supervisor import END, GRACE_S, LIMIT_S, LINGER_S
from traceprobe.errors import TraceprobeError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PATIENCE_S = 2 * (LINGER_S + GRACE_S + LIMIT_S)
"""Longer than a supervisor takes that works."""


class SupervisorLost(TraceprobeError):
    """The supervisor was killed, and nobody knows what became of the command."""


def _write_note(message: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{message.encode('ascii', 'backslashreplace').decode()}\n")


class SupervisedProcess:
    """A command that runs for as long as the block lasts; it is ended with all that it started.

    Args:
        folder: where its output goes, see `traceprobe.capture.process.supervisor`; removed where
            this process is killed. Without one it has the streams of the supervisor.
        streams: standard output and standard error of the supervisor, as `subprocess.Popen` takes
            them.
        on_note: called with processes that cannot be ended.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        streams: tuple[int | None, int | None] = (None, None),
        on_note: Callable[[str], None] = _write_note,
    ) -> None:
        self._command, self._environment, self._folder = command, environment, folder
        self._streams, self._on_note = streams, on_note
        self._answer: dict[str, Any] = {}

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._socket, child_socket = socket.socketpair()
        try:
            with child_socket:
                descriptor, folder = child_socket.fileno(), str(self._folder or "")
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", str(_SUPERVISOR), str(descriptor), folder),
                        *self._command,
                    ],
                    env=dict(self._environment),
                    stdin=subprocess.DEVNULL,
                    stdout=self._streams[0],
                    stderr=self._streams[1],
                    pass_fds=[descriptor],
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise
        return self._process

    def __exit__(self, *error: object) -> None:
        with sigint_ignored(), self._socket:
            self._end()
        for name in self._answer.get("left", []):
            self._on_note(f"traceprobe: cannot end {name}")

    @property
    def exit_code(self) -> int:
        """Exit code of the main process, after the block; negative for a signal.

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
        self._socket.settimeout(_PATIENCE_S)
        with suppress(OSError):  # it has gone, or takes longer than it may
            self._socket.sendall(END)
        with suppress(OSError):
            while block := self._socket.recv(65536):
                answer += block
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answer = json.loads(answer) if answer else {}


@dataclass(frozen=True)
class CommandOutput:
    """The output of a command that has ended.

    Args:
        exit_code: negative for a signal; None where it took longer than it may.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes


def capture_output(command: list[str], seconds: float | None = None) -> CommandOutput:
    """The output of a command.

    Args:
        seconds: how long it may take; it is ended then.

    Raises:
        OSError: it cannot be started.
        SupervisorLost: nobody knows how it ended.
    """
    supervised = SupervisedProcess(command, os.environ, streams=(subprocess.PIPE, subprocess.PIPE))
    timed_out = False
    with supervised as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
    if timed_out:
        try:
            out, err = process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired as still:  # somebody who cannot be ended holds the pipes
            out, err = still.stdout or b"", still.stderr or b""
    return CommandOutput(None if timed_out else supervised.exit_code, out, err)


def run_attached(command: list[str]) -> int:
    """Exit code of a command that writes where this process does; negative for a signal.

    Raises:
        OSError: it cannot be started.
        SupervisorLost: nobody knows how it ended.
    """
    supervised = SupervisedProcess(command, os.environ)
    with supervised as process:
        process.wait()
    return supervised.exit_code

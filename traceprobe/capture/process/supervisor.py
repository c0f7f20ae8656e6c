"""Stands between traceprobe and the program that it runs, so that nothing outlives the two.

It runs as a script, alone, on the standard library. Orphans of the program become its children
(`PR_SET_CHILD_SUBREAPER`), so that it finds them however they were started. It ends them all when
the program's main process has ended, when it is told to, and when traceprobe is no more.

    supervisor.py SOCKET FOLDER COMMAND...

The program writes into `stdout.log` and `stderr.log` of the folder; where that is an empty word it
has the streams of this process. On the socket `END` asks for the end; where the stream itself ends,
traceprobe was killed, and the folder goes too. The answer is
one JSON object: `code` of the main process, negative for a signal, or `errno` and `file` where it
could not be started; `left` names the processes that could not be ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

END = b"end"
OUT, ERR = "stdout.log", "stderr.log"
LINGER_S = 2.0
"""For processes that end by themselves shortly after the main one, as those of nsys do."""
GRACE_S = 5.0
"""Between asking and insisting."""
LIMIT_S = 5.0
"""After which what survives SIGKILL is named and left."""
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_PROC = Path("/proc")
_ENDED = "ZX"


def main() -> None:
    """Run the command to its end and answer."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    folder, command = Path(sys.argv[2]) if sys.argv[2] else None, sys.argv[3:]
    tree = ProcessTree(command)
    answer: dict[str, Any] = {"left": []}
    lost = False
    try:
        tree.start(folder)
    except OSError as error:
        answer.update(errno=error.errno, file=error.filename)
    else:
        lost = tree.wait(requests)
        answer["left"] = tree.end(0.0 if tree.end_requested else LINGER_S)
        answer["code"] = tree.code
    try:
        if not lost:
            requests.sendall(json.dumps(answer).encode())
    except OSError:
        lost = True
    if lost:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        for name in answer["left"]:
            sys.stderr.write(f"traceprobe: cannot end {name!a}\n")


class ProcessTree:
    """A process and all that come from it."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None
        """Of the main process, once it has ended."""
        self.end_requested = False
        """Whether the end was asked for."""
        self._finds_all = _becomes_subreaper() and (_PROC / "self" / "stat").exists()
        """Whether all descendants can be found, and are reaped by this process in the end."""
        self._childless = False
        """Whether there is no child any more. Then there are no descendants either."""

    def start(self, folder: Path | None) -> None:
        """Start the main process in a session of its own, with its output in the folder if any.

        Raises:
            OSError: it cannot be started.
        """
        self._awake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with contextlib.ExitStack() as logs:
            out, err = (
                None if folder is None else logs.enter_context((folder / name).open("wb"))
                for name in (OUT, ERR)
            )
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _END_SIGNALS:  # what is ignored (`nohup`) stays ignored
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._request_end)

    def wait(self, requests: socket.socket) -> bool:
        """Whether nobody is left who could ask; returns once the main process ends or one asks."""
        while self._reap() and not self.end_requested:
            ready, _, _ = select.select([requests.fileno(), self._awake], [], [])
            if self._awake in ready:
                os.read(self._awake, 4096)
            if requests.fileno() in ready:
                self.end_requested = True
                try:
                    return not requests.recv(len(END))
                except OSError:
                    return True
        return False

    def end(self, linger: float) -> list[str]:
        """Names of the processes that stay, after waiting, SIGTERM and SIGKILL."""
        self._until_none(linger)
        for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, LIMIT_S)):
            if self._until_none(patience, number):
                return []
        return sorted(map(_name, self._alive()))

    def _until_none(self, seconds: float, number: int = 0) -> bool:
        """Send a signal to each process, also to those to come; True once all have ended."""
        deadline, sent = time.monotonic() + seconds, set[int]()
        while True:
            self._reap()
            alive = self._alive()
            if self._childless if self._finds_all else not alive:
                return True
            for process in alive:
                if number and (process not in sent or number == signal.SIGKILL):
                    sent.add(process)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        self._send(process, number)
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    def _reap(self) -> bool:
        """Collect what has ended; True while the main process runs."""
        assert self._process is not None
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                break
            if not process:
                break
            if process == self._process.pid:
                self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        return self.code is None

    def _alive(self) -> list[int]:
        """All processes that come from this one; without /proc the main one's group at best."""
        if self._finds_all:
            return _descendants()
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 0)
            return [self._process.pid]
        return []

    def _send(self, process: int, number: int) -> None:
        (os.kill if self._finds_all else os.killpg)(process, number)

    def _request_end(self, number: int, frame: object) -> None:
        self.end_requested = True


def _becomes_subreaper() -> bool:
    """Have orphans become children of this process; False where the system knows no such thing."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1) == 0)


def _die_with_parent() -> None:
    """Even this process may be killed."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _descendants() -> list[int]:
    """Living processes that come from this one."""
    children: dict[int, list[int]] = {}
    living = set()
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # Other threads may outlive the main one.
            lives = fields[0] not in _ENDED or len(list((folder / "task").iterdir())) > 1
        except OSError:  # ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        if lives:
            living.add(int(folder.name))
    found, due = [], [os.getpid()]
    while due:
        process = due.pop()
        found.append(process)
        due.extend(children.get(process, []))
    return [process for process in found[1:] if process in living]


def _name(process: int) -> str:
    folder = _PROC / str(process)
    try:
        name = (folder / "comm").read_text(errors="replace").strip()
        owner = folder.stat().st_uid
    except OSError:
        return f"process {process}"
    why = "of another user" if owner != os.geteuid() else "which does not react to SIGKILL"
    return f"{name} (process {process}), {why}"


if __name__ == "__main__":
    main()

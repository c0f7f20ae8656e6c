"""A device, and whose turn it is on it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slowbench.cases import Case
from benchmarks.slowbench.turns import USES_DEVICE, Place
from benchmarks.slowbench.worker import GROUP


@dataclass
class Running:
    """A case that is being recorded.

    Args:
        group: of its processes. tool: Nsight Systems around it. device: its number.
    """

    case: Case
    place: Place
    group: int
    tool: subprocess.Popen[bytes] | None
    device: int
    began: float
    neighbour: int | None = None
    turn_began: float = 0.0
    turn_s: float = 0.0
    stopped: bool = False
    ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        if self.tool is not None:
            return self.tool.poll() is not None
        try:
            return bool(os.waitpid(self.group, os.WNOHANG)[0])
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """End its processes: of the program, of a tool around it, and its neighbour."""
        for group in (self.own_group, self.group, self.neighbour):
            _send(group, signal.SIGKILL)

    @property
    def own_group(self) -> int | None:
        """Group of the program under a tool, once it has one."""
        try:
            return int((self.place.folder / GROUP).read_text())
        except (OSError, ValueError):
            return None


class Device:
    """The GPUs of a case, or the CPU: who may use it now.

    Args:
        opened: file that is there while all may.
    """

    def __init__(self, number: int, opened: Path, ready: int) -> None:
        self.number, self.opened, self._least = number, opened, ready
        self.turn: Running | None = None
        self.closed = False
        opened.touch()

    def tick(self, running: list[Running], now: float) -> None:
        """Open or close the device, and give turns."""
        states = [(each, each.place.state) for each in running if not each.ended]
        ready = [each for each, state in states if state == "ready"]
        coming = [s for _, s in states if s in ("starting", "waiting", "setting up")]
        if not self.closed and ready and (len(ready) >= self._least or not coming):
            self.closed = True
            self.opened.unlink()
        if not self.closed:
            return
        self._stop(states)
        if any(state in USES_DEVICE and not each.stopped for each, state in states):
            return
        if self.turn is not None and not self.turn.ended and self.turn.place.state == "timing":
            return
        if self.turn is not None and self.turn.place.state == "ready" and not self.turn.ended:
            return  # it was told, and has not seen it yet
        if self.turn is not None and not self.turn.turn_s:
            self.turn.turn_s = now - self.turn.turn_began
        self.turn = ready[0] if ready else None
        if self.turn is None:
            self.closed = False
            self.opened.touch()
            for each, _ in states:
                _signal(each, signal.SIGCONT)
            return
        self.turn.turn_began = now
        self.turn.place.give_turn()

    def _stop(self, states: list[tuple[Running, str]]) -> None:
        for each, state in states:
            # Ranks that are stopped in the midst of a collective leave a kernel that spins, and
            # takes half of the GPU from whose turn it is: the device is theirs until they wait.
            if state in USES_DEVICE and not each.stopped and each.case.ranks == 1:
                _signal(each, signal.SIGSTOP)


def _signal(running: Running, number: signal.Signals) -> None:
    running.stopped = number == signal.SIGSTOP
    own = running.own_group
    _send(running.group if running.tool is None else own, number)


def _send(group: int | None, number: signal.Signals) -> None:
    try:
        if group is not None:
            os.killpg(group, number)
    except OSError:
        return

"""A device, and whose turn it is on it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slowbench.cases import Case
from benchmarks.slowbench.turns import GROUP, USES_DEVICE, Place


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
        opened: file that is there while all may. least: cases that take their turns in a row.
    """

    def __init__(self, number: int, opened: Path, least: int) -> None:
        self.number, self.opened, self._least = number, opened, least
        self.turn: Running | None = None
        opened.touch()

    @property
    def closed(self) -> bool:
        """Whether cases take turns."""
        return not self.opened.exists()

    def is_set_up(self, running: Sequence[Running]) -> bool:
        """Whether enough of its cases are ready for their turns, or no more will come."""
        states = [each.place.state for each in running if not each.ended]
        coming = [state for state in states if state in ("starting", "waiting", "setting up")]
        return states.count("ready") >= self._least or not coming

    def close(self) -> None:
        """From now on cases take turns."""
        self.opened.unlink()

    def open(self, running: Sequence[Running]) -> None:
        """From now on all may use it."""
        self.opened.touch()
        for each in running:
            if not each.ended:
                _signal(each, signal.SIGCONT)

    def give_turns(self, running: Sequence[Running], now: float) -> bool:
        """Stop who uses it without a turn, give the next turn; whether there is one."""
        states = [(each, each.place.state) for each in running if not each.ended]
        self._stop(states)
        if any(state in USES_DEVICE and not each.stopped for each, state in states):
            return True
        at = self.turn.place.state if self.turn is not None and not self.turn.ended else "done"
        if at in ("timing", "ready"):  # told, and has perhaps not seen it
            return True
        if self.turn is not None and not self.turn.turn_s:
            self.turn.turn_s = now - self.turn.turn_began
        self.turn = next((each for each, state in states if state == "ready"), None)
        if self.turn is None:
            return False
        self.turn.turn_began = now
        self.turn.place.give_turn()
        return True

    def _stop(self, states: Sequence[tuple[Running, str]]) -> None:
        for each, state in states:
            # Ranks that are stopped in the midst of a collective leave a kernel that spins, and
            # takes half of the GPU from whose turn it is: the device is theirs until they wait.
            if state in USES_DEVICE and not each.stopped and each.case.ranks == 1:
                _signal(each, signal.SIGSTOP)


def tick(devices: Sequence[Device], running: Sequence[Running], now: float) -> None:
    """Close all devices once the cases of each are set up; open them after all turns.

    They open and close together: what is set up for one compiles on the cores that programs of
    another have their turns on.
    """
    cases = {d: [each for each in running if each.device == d.number] for d in devices}
    ready = any(each.place.state == "ready" for each in running if not each.ended)
    if not devices[0].closed and ready and all(d.is_set_up(cases[d]) for d in devices):
        for device in devices:
            device.close()
    if not devices[0].closed:
        return
    given = [device.give_turns(cases[device], now) for device in devices]
    if not any(given):
        for device in devices:
            device.open(cases[device])


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

"""How a case and the session of all cases tell each other who may use the device.

Files in the folder of a case: it writes `state`, and waits for `go` before its turn. A file of the
whole device, `open`, is there while anybody may use it; a turn is alone with the device.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal, get_args

State = Literal["starting", "waiting", "setting up", "ready", "timing", "recorded", "done"]
STATES: tuple[State, ...] = get_args(State)
USES_DEVICE: tuple[State, ...] = ("setting up", "recorded")
"""States of a case, besides its turn, in which it uses the device: it is stopped during a turn."""
GROUP = "group"
"""File with the number of the processes of a case that a tool has started."""
_POLL_S = 0.01


class Place:
    """The files of a case.

    Args:
        folder: of the case. opened: file of its device.
    """

    def __init__(self, folder: Path, opened: Path) -> None:
        self.folder, self.opened = folder, opened
        self._go = folder / "go"

    @property
    def state(self) -> State:
        """What the case is at."""
        try:
            text = (self.folder / "state").read_text()
        except OSError:
            return "starting"
        return next((state for state in STATES if state == text), "starting")

    def tell(self, state: State) -> None:
        """Say what the case is at."""
        temporary = self.folder / ".state"
        temporary.write_text(state)
        temporary.replace(self.folder / "state")

    def enter(self, state: State) -> None:
        """Wait until the device is open to all, then go on."""
        while True:
            while not self.opened.exists():
                time.sleep(_POLL_S)
            self.tell(state)
            if self.opened.exists():  # and was not closed between the two
                return
            self.tell("waiting")

    def wait_for_turn(self) -> None:
        """Wait until this case may begin its turn."""
        self.tell("ready")
        while not self._go.exists():
            time.sleep(_POLL_S)
        self.tell("timing")

    def give_turn(self) -> None:
        """Let the case begin."""
        self._go.touch()

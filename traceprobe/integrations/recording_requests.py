"""When a recording is due: every so many steps, after a signal, when a file appears.

Ranks record the same steps. Steps at intervals are the same on all of them by themselves. What is
asked for, the first rank announces in the folder that they share, for a step that none has come to;
no collective is added to those of the training.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from traceprobe.capture.process.progress import write_result
from traceprobe.integrations.settings import REQUEST_FILE, Settings

ANNOUNCED = ".record-at"
LOOK_S = 0.25
"""Between two looks at the folder."""
AHEAD_STEPS, AHEAD_S = 10, 2.0
"""How far ahead a step is announced, at least: ranks may be some steps and looks apart."""


class Requests:
    """Asked before every step.

    Args:
        say: told what cannot be done.
    """

    def __init__(
        self, settings: Settings, rank: int, ranks: int, say: Callable[[str], None]
    ) -> None:
        self._every, self._number = settings.every, settings.signal
        self._file = Path(settings.output) / REQUEST_FILE
        self._announcement = Path(settings.output) / ANNOUNCED
        self._first, self._alone, self._say = rank == 0, ranks == 1, say
        self._before: Any = None
        self._handles = self._signalled = False
        self._last = 0
        self._next_look_s = 0.0
        self._at: int | None = None

    def open(self, done: int) -> None:
        """The training begins, after so many steps of an earlier one."""
        self._last, self._at, self._signalled = done, None, False
        if self._first:
            self._announcement.unlink(missing_ok=True)
        self._next_look_s = time.monotonic() + LOOK_S
        if self._number is not None and not self._handles:
            self._handle(self._number)

    def close(self) -> None:
        """The training has ended; the signal's old handler is put back."""
        if self._handles and threading.current_thread() is threading.main_thread():
            assert self._number is not None
            if signal.getsignal(self._number) == self._asked:  # else somebody has replaced ours
                signal.signal(self._number, self._before or signal.SIG_DFL)
            self._handles = False
        if self._first:
            with suppress(OSError):
                self._announcement.unlink(missing_ok=True)

    def due(self, done: int, pace: Callable[[], float]) -> bool:
        """Whether a recording is to begin with the step after `done` ones.

        Args:
            pace: asked how long a step takes, s; 0 where that is not known.
        """
        crossed = bool(self._every) and done // self._every > self._last // self._every
        self._last = done
        if self._asked_for() and self._at is None:
            self._at = done if self._alone else self._announced(done, pace())
        if self._at is None or done < self._at:
            return crossed
        on_time, self._at = done == self._at, None
        return on_time or crossed

    def _announced(self, done: int, step_s: float) -> int:
        """A step that no rank has come to, and that all will know of by then."""
        ahead = max(AHEAD_STEPS, math.ceil(AHEAD_S / step_s) if step_s else AHEAD_STEPS)
        write_result(self._announcement, str(done + ahead))
        return done + ahead

    def _asked_for(self) -> bool:
        """Whether somebody has asked since the last time; the first rank answers for all."""
        signalled, self._signalled = self._signalled, False
        if signalled and self._first:
            return True
        if signalled:
            self._file.touch()
        if time.monotonic() < self._next_look_s:
            return False
        self._next_look_s = time.monotonic() + LOOK_S
        if not self._first:
            self._listen()
            return False
        if not self._file.exists():
            return False
        self._file.unlink(missing_ok=True)
        return True

    def _listen(self) -> None:
        with suppress(FileNotFoundError, ValueError):
            at = int(self._announcement.read_text())
            self._at = at if at >= self._last else None

    def _handle(self, number: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._say(
                "signals reach the main thread only, and the training runs in another; ask for a "
                f"recording with: touch {self._file}"
            )
            return
        self._before = signal.signal(number, self._asked)
        self._handles = True

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if callable(self._before):
            self._before(number, frame)

"""A program that does not use the recorder: optimizer steps count its iterations."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from traceprobe.capture.loop.backward_pass import call_around_backward_passes, in_backward_pass
from traceprobe.capture.loop.loop_session import (
    Bystander,
    LoopSession,
    folder_of_process,
    session_of_process,
)
from traceprobe.capture.loop.loop_updates import updates
from traceprobe.capture.memory.memory_prediction_session import (
    NO_MODEL,
    current_memory_prediction,
)
from traceprobe.capture.owners.kernel_owners import watch_graphs
from traceprobe.capture.process.progress import asked_to_end
from traceprobe.capture.profiler.other_profilers import other_profilers
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.recording_session import RecordingSession
from traceprobe.model.step_names import step_name

_adopted = False


def adopt_recorder() -> None:
    """Say that this process has a recorder of its own, which then is the only one."""
    global _adopted  # one process, one recording
    _adopted = True


def install_optimizer_hook(module: Any) -> None:
    """Count the updates that end steps.

    Args:
        module: torch.optim.optimizer, just imported.
    """
    if not hasattr(module, "register_optimizer_step_post_hook"):
        return
    other_profilers.watch()
    start = session_of_process()
    recording = RecordingPlan.current()
    if recording is not None and recording.backend == "torch":
        watch_graphs()
    if start is not None:
        updates.watched = True
        marked = recording is not None and recording.backend == "nsys"
        module.register_optimizer_step_post_hook(_Steps(start, marked=marked))
    elif current_memory_prediction() is not None:
        module.register_optimizer_step_post_hook(lambda *_: _refuse(NO_MODEL))


def _refuse(why: str) -> None:
    """A program that cannot be simulated must not train to its end."""
    if not _adopted:
        raise SystemExit(why)


class _Steps:
    """Tells the session of this process of the updates that end steps.

    An update that is made inside a backward pass ends the step when that pass is over.

    Args:
        start: makes the session, when that is.
        marked: whether every iteration is inside a range, for profilers of other processes.
    """

    def __init__(self, start: Callable[[], LoopSession], *, marked: bool) -> None:
        self._start, self._marked = start, marked
        self._session: LoopSession | None = None
        self._process = 0
        self._number = 0
        self._ended = self._due = self._follows_passes = False
        self._range: Any = None

    def __call__(self, optimizer: Any, *_: Any) -> None:
        if not updates.ends_step(optimizer) or _adopted:
            return
        if not in_backward_pass():
            self._end_step()
            return
        self._due = True
        if not self._follows_passes:
            self._follows_passes = True
            call_around_backward_passes(self._end_step_if_due)

    def _end_step_if_due(self) -> None:
        if self._due and not _adopted:
            self._end_step()

    def _end_step(self) -> None:
        self._due = False
        if self._session is None:
            self._process = os.getpid()
            self._session = self._start()
        elif self._process != os.getpid():  # forked: the steps are those of its parent
            return
        self._mark()
        if not self._ended and not self._session.before_step(self._number):
            self._ended = True
            folder = folder_of_process()
            # A bystander may be done while its rank records names.
            if folder is not None and not isinstance(self._session, Bystander):
                asked_to_end(folder)
        if self._ended:
            # The recording is complete; the program is not asked to train on, nor asked once.
            raise SystemExit(0)
        self._number += 1

    def _mark(self) -> None:
        """A start/end range per iteration, which nests with nothing of the program's own."""
        if not self._marked:
            return
        import torch

        if self._range is not None:
            torch.cuda.nvtx.range_end(self._range)
            self._range = None
        if isinstance(self._session, RecordingSession) and self._session.discards:
            return
        self._range = torch.cuda.nvtx.range_start(step_name(self._number))

"""Taking a running loop through trials, and giving it back as it was however they end."""

from __future__ import annotations

import atexit
import os
from abc import ABC, abstractmethod
from collections.abc import Generator
from functools import partial

from traceprobe.capture.device import computes
from traceprobe.capture.environment import Plan
from traceprobe.capture.oracle.blocks import Blocks
from traceprobe.capture.progress import refuse, report_state
from traceprobe.capture.rank_results import Shortfall


class TrialSession(ABC):
    """Goes on with its trials before each step; `before_step` says whether the loop goes on.

    Args:
        plan: number and length of the trials.
    """

    phases: None = None
    """Its steps have no phases."""

    def __init__(self, plan: Plan) -> None:
        self._folder, self._workload = plan.folder, plan.workload
        self._report = partial(report_state, plan.folder)
        self._described: dict[str, object] = {}
        self._made = Blocks()
        self._steps = 0
        self._process = os.getpid()
        self._running: Generator[None, None, None] | None = self._run()
        atexit.register(self.close)

    @abstractmethod
    def _run(self) -> Generator[None, None, None]:
        """All that is done, resumed before each step."""

    @abstractmethod
    def _needed(self) -> int | None:
        """Steps that the program has to make in all, as soon as that is known."""

    def _step_ends(self) -> None:  # noqa: B027 - not all have it
        """A step has ended; what follows it is not part of any."""

    def _step_begins(self) -> None:  # noqa: B027 - not all have it
        """What was to be done before a step is done."""

    def _give_back(self) -> None:  # noqa: B027 - not all have it
        """Undo what holds for all trials."""

    def memory(self, model: object, optimizer: object) -> None:  # noqa: B027 - a recorder tells each
        """What memory is for does not matter here."""

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload, for the results."""
        self._described.update(described)

    def before_step(self, number: int) -> bool:
        """Iteration `number` is about to begin; False where all trials are done."""
        if os.getpid() != self._process or _capturing():
            return True
        if self._running is None:
            return False
        self._steps = number
        self._step_ends()
        try:
            next(self._running)
        except StopIteration:
            self._end()
            return False
        except Exception as error:  # of ours: the program must not train on with parts taken out
            self._end()
            refuse(self._folder, f"the trials failed ({type(error).__name__}: {error})")
        self._step_begins()
        return True

    def close(self) -> None:
        """The program ends its loop: before its trials are done, where they still go on."""
        if self._running is not None and os.getpid() == self._process:
            Shortfall(self._steps, self._needed()).save(self._folder)
            self._end()

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()  # leaves the condition that holds
        self._give_back()
        atexit.unregister(self.close)


def _capturing() -> bool:
    """Whether the step becomes part of a CUDA graph, where nothing may be waited for."""
    import torch

    return computes() and torch.cuda.is_current_stream_capturing()

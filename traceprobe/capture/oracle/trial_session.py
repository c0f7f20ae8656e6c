"""Taking a running loop through trials, and giving it back as it was however they end."""

from __future__ import annotations

import atexit
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator
from functools import partial
from itertools import pairwise
from statistics import median

from traceprobe.capture.machine.device import captures_graph
from traceprobe.capture.oracle.blocks import LEAST_WARM_UP, Blocks
from traceprobe.capture.process.environment import Plan
from traceprobe.capture.process.progress import ended_early, refuse, report_state

_LAST = 9
"""Steps whose ends tell the pace, one more than there are durations."""


class TrialSession(ABC):
    """Goes on with its trials before each step; `before_step` says whether the loop goes on.

    Args:
        plan: number and length of the trials.
        updates_counted: whether every step ends with one of an optimizer.
    """

    phases: None = None
    """Its steps have no phases."""

    def __init__(self, plan: Plan, *, updates_counted: bool = False) -> None:
        self._folder, self._workload = plan.folder, plan.workload
        self._least_warmup, self._updates_counted = plan.warmup, updates_counted
        self._report = partial(report_state, plan.folder)
        self._described: dict[str, object] = {}
        self._made = Blocks()
        self._steps = self._begun = 0
        self._last: deque[float] = deque(maxlen=_LAST)
        self._process = os.getpid()
        self._running: Generator[None, None, None] | None = self._run()
        atexit.register(self.close)

    @abstractmethod
    def _run(self) -> Generator[None, None, None]:
        """All that is done, resumed before each step."""

    @abstractmethod
    def _trials_take(self, step_s: float | None) -> int:
        """Steps that all trials take after the warm-up; foreseen as long as that is not known.

        Args:
            step_s: a typical step so far; None where there was none.
        """

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
        if os.getpid() != self._process or captures_graph():
            return True
        if self._running is None:
            return False
        self._steps, self._begun = number, number + 1
        self._last.append(time.perf_counter())
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
            ended_early(self._folder, self._begun, self._needed())
            self._end()

    def _needed(self) -> int:
        """Steps that the program has to make in all."""
        durations = [end - begin for begin, end in pairwise(self._last)]
        warmed = self._steps - self._made.iterations
        if not self._made.iterations:
            warmed = max(warmed, self._least_warmup + LEAST_WARM_UP)
        # Where updates are counted, the first one only shows that there is a loop.
        first = int(self._updates_counted)
        return first + warmed + self._trials_take(median(durations) if durations else None)

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()  # leaves the condition that holds
        self._give_back()
        atexit.unregister(self.close)

"""The step recorder that a training loop adopts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from traceprobe.capture.plan import current
from traceprobe.capture.ranges import Range, Ranges
from traceprobe.capture.session import Session
from traceprobe.capture.unaware import adopt

Batch = TypeVar("Batch")


def recorder() -> Recorder:
    """The recorder of this process; it records if `traceprobe profile` started the process."""
    adopt()
    plan = current()
    return Recorder(None if plan is None else Session(plan))


class Recorder:
    """Marks steps and phases, and drives a recording where there is one."""

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._ranges = Ranges()

    @property
    def recording(self) -> bool:
        """Whether `traceprobe profile` started this process."""
        return self._session is not None

    def phase(self, name: str) -> Range:
        """A context manager around a phase, such as "h2d", "forward", "backward", "optimizer"."""
        return self._ranges(name)

    def describe(self, **facts: object) -> None:
        """Add facts about the workload to the recording: batch size, parameters, precision."""
        if self._session is not None:
            self._session.describe(facts)

    def steps(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of the loader, each inside a range `step N`.

        Without a recording this is one pass over the loader. A recording starts the loader anew as
        often as it needs, and ends after its last step.
        """
        number = 0
        batches = iter(loader)
        while self._session is None or self._session.before_step(number):
            with self._ranges(f"step {number}"):
                began = time.perf_counter_ns()
                try:
                    with self._ranges("data_loading"):
                        batch = next(batches)
                except StopIteration:
                    if self._session is None or number == 0:
                        return
                    batches = iter(loader)
                    with self._ranges("data_loading"):
                        batch = next(batches)
                if self._session is not None:
                    self._session.waited(time.perf_counter_ns() - began)
                yield batch
            number += 1

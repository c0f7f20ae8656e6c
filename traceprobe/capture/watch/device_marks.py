"""Ends of steps by the clock of the device, which nobody waits for.

The host runs ahead of the device, so its steps are short until one waits: a logged loss makes that
one look long. An event in the stream of the update says when the device got there. It is asked for
at later steps, when it has long passed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any, NamedTuple

from traceprobe.capture.watch.step_rows import StepRows

LAST_S = 1.0
"""Time that the device may take for the last steps when the program ends."""
MOST_PENDING = 4_096
"""Steps that the host may be ahead, more than CUDA's queue of launches allows."""


class _Pending(NamedTuple):
    number: int
    end_ns: int
    ns: int
    wait_ns: int
    event: Any


class DeviceMarks:
    """Takes steps as the host ends them, and gives them on as long as the device took.

    Args:
        steps: takes what has ended on the device.
    """

    def __init__(self, steps: StepRows) -> None:
        import torch

        self._steps = steps
        self._event, self._capturing = torch.cuda.Event, torch.cuda.is_current_stream_capturing
        self._pending: deque[_Pending] = deque()
        self._free: list[Any] = []
        self._last = self._mark()

    def add(self, number: int, end_ns: int, ns: int, wait_ns: int) -> None:
        """A step has ended on the host, which took `ns` for it."""
        if self._capturing():  # of a CUDA graph: nothing else may be asked of the device
            self._pending.append(_Pending(number, end_ns, ns, wait_ns, None))
            return
        self._pending.append(_Pending(number, end_ns, ns, wait_ns, self._mark()))
        while self._pending and (self._passed() or len(self._pending) > MOST_PENDING):
            self._give()

    def close(self) -> None:
        """The program ends: the last steps are given on, as the host saw them if need be."""
        deadline = time.monotonic() + LAST_S
        while self._pending:
            if self._passed() or time.monotonic() > deadline:
                self._give()
            else:
                time.sleep(0.001)
        self._steps.close()

    def _mark(self) -> Any:
        event = self._free.pop() if self._free else self._event(enable_timing=True)
        event.record()
        return event

    def _passed(self) -> bool:
        event = self._pending[0].event
        return event is None or event.query()

    def _give(self) -> None:
        """Give on the step that is first in line."""
        number, end_ns, ns, wait_ns, event = self._pending.popleft()
        last, self._last = self._last, event
        if last is not None and event is not None and event.query():
            ns = round(1e6 * last.elapsed_time(event))
        if last is not None:
            self._free.append(last)
        self._steps.add(number, end_ns, ns, wait_ns)


def step_taker(steps: StepRows) -> StepRows | DeviceMarks:
    """What takes the steps of this process: by the device's clock where it uses one of CUDA's."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return steps
    return DeviceMarks(steps)

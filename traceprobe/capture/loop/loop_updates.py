"""Which updates end the steps of a loop, and which batches are a step: the same for all.

A step is one repetition of the training loop: all micro-batches whose gradients an update uses, and
the updates of all optimizers that take turns.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from traceprobe.capture.machine.device import captures_graph

MOST_APART = 64
"""Updates of another optimizer, and batches, without one that counts; then it is no part of the
loop, or not yet."""
_LONGER = 2
"""Times the longest step so far that a step may be, in batches."""


class LoopUpdates:
    """Counts the updates of the optimizer that steps first, for as long as it trains.

    One that is gone, or does not step while another one does `MOST_APART` times, trains no more: a
    phase of the training, or a fold, is over. The other one counts then.
    """

    def __init__(self) -> None:
        self.count = 0
        self.watched = False
        """Whether they are seen at all."""
        self.hidden = False
        """Whether the last one became part of a CUDA graph, whose replays nobody sees."""
        self._counted: weakref.ref[Any] | None = None
        self._others: Counter[int] = Counter()

    def ends_step(self, optimizer: Any) -> bool:
        """Whether an update that this optimizer has made ends a step."""
        counted = None if self._counted is None else self._counted()
        if counted is not optimizer:
            if counted is not None:
                self._others[id(optimizer)] += 1
                if self._others[id(optimizer)] < MOST_APART:
                    return False
            self._counted = weakref.ref(optimizer)
        self._others.clear()
        self.hidden = captures_graph()
        self.count += 1
        return True


class StepBatches:
    """Tells, in a loop that says when it takes a batch, which batch is the last of a step.

    That is the one after which an update came. Where none comes, each batch is a step.
    """

    def __init__(self, updates: LoopUpdates) -> None:
        self._updates = updates
        self._seen = updates.count
        self._since = self._longest = 0
        """Batches since the last update, and of the longest step."""
        self._awaited: bool | None = None

    def begin(self) -> None:
        """A step begins; what was updated since the last one belongs to none."""
        self._seen = self._updates.count

    def ended(self) -> bool:
        """Whether the step has ended, after the loop is done with a batch."""
        self._since += 1
        if self._updates.count != self._seen:
            self._longest = max(self._longest, self._since)
            self._since, self._awaited = 0, True
            return True
        if self._awaited is None:
            self._awaited = self._updates.watched and _has_optimizer()
        if self._updates.hidden or self._since >= max(MOST_APART, _LONGER * self._longest):
            self._awaited = False
        return not self._awaited


def _has_optimizer() -> bool:
    """Whether the program has anything that may make an update."""
    import torch

    from traceprobe.capture.oracle.instances import instances

    return bool(instances(torch.optim.Optimizer))


updates = LoopUpdates()
"""Of this process."""

"""A delay that only the collectives of DDP see: what they run on is busy when they begin.

NCCL's operations of a process group follow each other on a stream of its own, each after what was
on the current stream when it was called. A small one that is called on a side stream behind a spin
holds back those after it, and nothing else. All ranks call it at the same place of the step.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from traceprobe.capture.machine.hardware import world_size
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.delays import DeviceSpin


def held_groups() -> list[Any]:
    """The process groups whose collectives can be held back.

    Raises:
        Unavailable: there are none; its text says why.
    """
    import torch
    import torch.distributed as dist

    if world_size() == 1:
        raise Unavailable("the program has one rank")
    kind = torch.nn.parallel.DistributedDataParallel
    # By type: asking a stranger's object for its class may run code of its own.
    models = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    groups = {id(model.process_group): model.process_group for model in models}
    if not groups or any("nccl" not in str(dist.get_backend(g)) for g in groups.values()):
        raise Unavailable("only collectives of DDP over NCCL can be held back from outside")
    return list(groups.values())


class LateCollectives:
    """Collectives that are called from now on in a step begin so much later.

    Args:
        seconds: 0 for the small collective alone, to which others are compared.
    """

    def __init__(self, seconds: float, groups: list[Any]) -> None:
        import torch

        self._groups = groups
        self._spin = DeviceSpin(seconds)
        self._stream = torch.cuda.Stream()
        self._word = torch.zeros(1, device="cuda")

    @property
    def given_s(self) -> float:
        """Of the spins so far, in seconds."""
        return self._spin.given_s

    def __call__(self) -> None:
        """Hold the groups back."""
        import torch
        import torch.distributed as dist

        with torch.cuda.stream(self._stream):
            self._spin()
            for group in self._groups:
                dist.all_reduce(self._word, group=group, async_op=True)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """As of the spin."""
        with self._spin.ready():
            yield

"""Replicas that do not average their gradients, and how they become one model again.

Of programs with DistributedDataParallel. What others send is taken out by `wire`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from traceprobe.capture.machine.hardware import world_size
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.instances import instances
from traceprobe.capture.oracle.ranks import agreed
from traceprobe.capture.oracle.wire import Wire

ALONE = "the program runs on one rank"
OTHERS = "DistributedDataParallel, which other ranks of the program use, is not what this one does"
_FLAGS = ("require_backward_grad_sync", "require_forward_param_sync")


class Replicas:
    """The DistributedDataParallel (DDP) models of this process."""

    def __init__(self) -> None:
        import torch

        kind = torch.nn.parallel.DistributedDataParallel
        self._models = instances(kind) if world_size() > 1 else []
        self._apart = False

    @property
    def known(self) -> bool:
        """Whether there are any."""
        return bool(self._models)

    def check(self) -> None:
        """Whether communication can be taken out.

        Raises:
            Unavailable: there is none, or it is that of other ranks alone.
        """
        if not self._models:
            raise Unavailable(ALONE if world_size() == 1 else OTHERS)

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """DDP neither averages the gradients of these models nor sends their buffers.

        Raises:
            Unavailable: as `check`.
        """
        self.check()
        self._apart = True
        before = [(m, name, getattr(m, name)) for m in self._models for name in _FLAGS]
        for model, name, _ in before:
            setattr(model, name, False)
        try:
            yield
        finally:
            for model, name, value in before:
                setattr(model, name, value)

    def reunite(self) -> None:
        """Give all ranks the weights, buffers and optimizer states of the first, if they differ."""
        if not self._apart:
            return
        import torch
        import torch.distributed as dist

        optimizers = instances(torch.optim.Optimizer)
        for model in self._models:
            parameters = list(model.parameters())
            states = [
                value
                for parameter in parameters
                for optimizer in optimizers
                for value in optimizer.state.get(parameter, {}).values()
                if isinstance(value, torch.Tensor) and value.device == parameter.device
            ]
            if agreed(len(states)) != -agreed(-len(states)):  # every rank has those of a part
                states = []
            first = dist.get_global_rank(model.process_group, 0)
            with torch.no_grad():
                for tensor in (*parameters, *model.buffers(), *states):
                    with suppress(TypeError, ValueError):  # of a kind that is not sent
                        dist.broadcast(tensor.detach(), first, model.process_group)
        self._apart = False


def communication() -> Replicas | Wire:
    """How communication is taken out of this program; its ranks ask together."""
    replicas = Replicas()
    alone = world_size() == 1
    return replicas if alone or agreed(int(replicas.known)) else Wire()

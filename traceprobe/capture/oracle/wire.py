"""Collectives that end at once: process groups whose backend sends nothing.

A process group hands what it is asked for to the backend of a device, and another one can be put in
its place. PyTorch has one for tests that does nothing (`FakeProcessGroup`). So a program without
DistributedDataParallel (FSDP, tensor parallelism, pipelines, collectives of its own) loses
communication and nothing else: it packs, splits and calls as before. What it computes from what was
never sent is wrong, and ends with the trial: all that it trains is copied to the host's memory
before, and given back after, however the trial ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceprobe.capture.machine import device
from traceprobe.capture.machine.hardware import world_size
from traceprobe.capture.oracle import ranks
from traceprobe.capture.oracle.blocks import Unavailable
from traceprobe.capture.oracle.instances import instances

NO_GROUPS = "the program has no process group whose collectives could be taken out"
NO_BACKEND = "this PyTorch has no backend of process groups that sends nothing"
NOT_BACK = "a process group has a backend that could not be put back into its place"
TOO_LARGE = "a copy of what the program trains does not fit into half of the host's free memory"


class Wire:
    """The process groups of this process that the program has made so far.

    The ranks make a group of their own to meet in, together.
    """

    def __init__(self) -> None:
        self._groups = _groups()
        ranks.meet_apart()

    def check(self) -> None:
        """Whether communication can be taken out.

        Raises:
            Unavailable: it cannot.
        """
        if not self._groups:
            raise Unavailable(NO_GROUPS)
        if _silent(self._groups[0]) is None:
            raise Unavailable(NO_BACKEND)

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """No collective of these groups sends anything.

        Raises:
            Unavailable: as `check`, or there is no room for a copy of what is trained.
        """
        self.check()
        import torch

        where = torch.device("cuda" if device.computes() else "cpu")
        kinds = torch.distributed.ProcessGroup.BackendType
        backends = [group._get_backend(where) for group in self._groups]
        own = [kinds.__members__.get(backend.name().upper()) for backend in backends]
        if None in own:
            raise Unavailable(NOT_BACK)
        with _given_back():
            try:
                for group in self._groups:
                    group._register_backend(where, kinds.CUSTOM, _silent(group))
                yield
            finally:
                for group, kind, backend in zip(self._groups, own, backends, strict=True):
                    group._register_backend(where, kind, backend)

    def reunite(self) -> None:
        """The ranks are as they were."""


@contextmanager
def _given_back() -> Iterator[None]:
    """All that the program trains is afterwards what it was before.

    Raises:
        Unavailable: there is no room for a copy.
    """
    import torch

    trained = list(_trained())
    size = sum(tensor.numel() * tensor.element_size() for tensor in trained)
    free = _free_bytes()
    if free is not None and 2 * size * _ranks_here() > free:
        raise Unavailable(TOO_LARGE)
    kept = [tensor.to("cpu", copy=True) for tensor in trained]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(trained, kept, strict=True):
                tensor.copy_(before)


def _ranks_here() -> int:
    """Ranks that share the memory of this machine, as far as is known."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(told) if told.isdecimal() and int(told) else world_size()


def _groups() -> list[Any]:
    """The process groups of several ranks, on the device that computes; not that of ours."""
    import torch.distributed as dist

    where = "cuda" if device.computes() else "cpu"
    made = [g for g in dist.distributed_c10d._world.pg_map if not ranks.is_ours(g)]
    on = [g for g in made if where in {each.type for each in g._device_types}]
    return [group for group in on if group.size() > 1]


def _silent(group: Any) -> Any | None:
    """A backend that sends nothing, for a group; None where this PyTorch has none."""
    try:
        from torch._C._distributed_c10d import FakeProcessGroup
    except ImportError:
        return None
    # Newer versions keep the constructor to themselves.
    make = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
    return make(group.rank(), group.size())


def _trained() -> Iterator[Any]:
    """What this rank holds of optimizers' states, and of parameters and buffers of all modules."""
    import torch

    seen: set[tuple[int, int]] = set()
    for optimizer in instances(torch.optim.Optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                states = optimizer.state.get(parameter, {}).values()
                yield from _once(seen, (parameter, *states))
    for module in instances(torch.nn.Module):
        yield from _once(seen, (*module._parameters.values(), *module._buffers.values()))


def _once(seen: set[tuple[int, int]], values: Any) -> Iterator[Any]:
    """The tensors among some values, those of a sharded one its own, each once."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type != "meta":
            own = value.to_local() if hasattr(value, "to_local") else value
            if (where := (own.data_ptr(), own.numel())) not in seen:
                seen.add(where)
                yield own.detach()


def _free_bytes() -> int | None:
    """Memory that the host has to give, as Linux tells; None elsewhere."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            told = next(line for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    return 1024 * int(told.split()[1])

"""A training step on tensors without data: how much memory it takes, before it takes any.

The program's own loop runs on fake tensors, which have sizes and storages but no data. A dispatch
mode sees every operator that PyTorch would run and follows the storages that it makes until
Python and autograd let go of them, which is when the caching allocator would get them back. What
happens inside a kernel stays unseen: workspaces of cuBLAS and cuDNN, and scratch of a kernel's own.
"""

from __future__ import annotations

import os
import re
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from traceprobe.capture.memory.allocation_log import AllocationLog, summarize_allocations
from traceprobe.capture.memory.caching_allocator import CachingAllocator

STEPS = 2
"""The first makes the optimizer's state; what it leaves behind is there when the second begins."""
HANDLES = 2
"""Of cuBLAS: the thread of the forward pass has one, that of the backward pass another."""


class StorageTracker(TorchDispatchMode):  # type: ignore[misc]
    """Logs the storages that operators make on a device, from allocation to release."""

    def __init__(self, log: AllocationLog, device: torch.device) -> None:
        super().__init__()
        self._log, self._device = log, device
        self._watched: dict[int, weakref.ref[Any]] = {}
        self.allocator = CachingAllocator()

    def set_part(self, tensor: torch.Tensor, part: str) -> None:
        """A tensor turns out to be for something."""
        self._log.set_part(tensor.untyped_storage()._cdata, part)

    def _new(self, tensor: torch.Tensor) -> bool:
        if tensor.device.type != self._device.type:
            return False
        return tensor.untyped_storage()._cdata not in self._watched

    def _watch(self, storage: Any) -> None:
        key: int = storage._cdata
        self.allocator.allocate(key, storage.nbytes())

        def gone(_: Any) -> None:
            del self._watched[key]
            self._log.free(key)
            self.allocator.free(key)

        self._watched[key] = weakref.ref(storage, gone)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and look at what it returns."""
        if args and isinstance(args[0], FakeTensor):
            if func is torch.ops.aten._local_scalar_dense.default:
                return _read(args[0])
            if func is torch.ops.prim.device.default:  # asked so often that it is worth a shortcut
                return args[0].fake_device
            if torch.Tag.pointwise in func.tags and _in_place(func):
                return args[0]
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and self._new(tensor):
                storage = tensor.untyped_storage()
                self._log.allocate(storage._cdata, storage.nbytes(), func.overloadpacket.__name__)
                self._watch(storage)
        return found


@cache
def _in_place(func: Any) -> bool:
    """Whether an operator writes into its first argument and returns that."""
    schema = func._schema
    first = schema.arguments[0].alias_info
    return (
        len(schema.returns) == 1
        and first is not None
        and first.is_write
        and schema.returns[0].alias_info is not None
        and not any(a.alias_info is not None for a in schema.arguments[1:])
    )


def _read(tensor: torch.Tensor) -> int | float:
    """What the host reads from a tensor without data.

    Optimizers count their steps on the host, from 1 on; what a GradScaler looks for on the device
    is whether a gradient was infinite, and it was not.
    """
    value = 1 if tensor.device.type == "cpu" else 0
    return value if not tensor.dtype.is_floating_point else float(value)


class StepSimulation:
    """Steps of one program on fake tensors.

    Args:
        model, optimizer: those of the loop; they are put back as they were.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._device = next(model.parameters()).device
        self._log = AllocationLog()
        self._follow = StorageTracker(self._log, self._device)
        self.result: dict[str, Any] = {}
        """The account of the last step, with what the allocator would have reserved."""

    def phase(self, name: str) -> Any:
        """A context manager around a phase of the step."""
        return self._log.phase(name)

    def steps(self, batch: Any) -> Iterator[Any]:
        """A fake of the batch, once for each step, while model and optimizer are fakes."""
        fakes = FakeTensorMode(allow_non_fake_inputs=True)
        with fakes, self._follow, self._replaced():
            fake = self._batch(batch)
            self._reserve_workspaces()
            for _ in range(STEPS):
                self._log.start_step()
                yield fake
            # Here, since what the fakes leave behind is not freed by the step.
            reserved = self._follow.allocator.reserved
            self.result = {**summarize_allocations(self._log), "reserved_bytes": reserved}

    def _reserve_workspaces(self) -> None:
        """What cuBLAS takes from the allocator at its first product, and keeps."""
        if self._device.type != "cuda":
            return
        nbytes = workspace_bytes(
            torch.cuda.get_device_capability(self._device),
            os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        )
        for number in range(HANDLES):
            key = f"workspace {number}"
            self._log.add_existing(key, nbytes, "held")
            self._follow.allocator.allocate(key, nbytes)

    def _batch(self, batch: Any) -> Any:
        def fake(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            made = _like(item)
            self._follow.set_part(made, "input")
            return made

        return tree_map(fake, batch)

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """Fakes in place of parameters, buffers and optimizer state."""
        made: dict[int, torch.Tensor] = {}

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in made:
                made[id(tensor)] = self._fake(tensor)
            return made[id(tensor)]

        with ExitStack() as undo:
            for module in self._model.modules():
                for tensors in (module._parameters, module._buffers):
                    undo.callback(tensors.update, dict(tensors))
                    for name, tensor in tensors.items():
                        if tensor is not None:
                            tensors[name] = fake(tensor)
            for group in self._optimizer.param_groups:
                undo.callback(group.update, dict(group))
                group["params"] = [fake(parameter) for parameter in group["params"]]
                group.update(_implementation(group))
            undo.callback(setattr, self._optimizer, "state", self._optimizer.state)
            self._optimizer.state = defaultdict(dict, {})
            undo.callback(self._optimizer.register_step_post_hook(self._own_state).remove)
            yield

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        made = _like(tensor)
        self._follow.set_part(made, "weights")
        if not isinstance(tensor, nn.Parameter):
            return made
        parameter = nn.Parameter(made, requires_grad=tensor.requires_grad)
        if tensor.requires_grad:
            parameter.register_post_accumulate_grad_hook(self._own_gradient)
        return parameter

    def _own_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._follow.set_part(parameter.grad, "gradients")

    def _own_state(self, *_: Any) -> None:
        for tensor in tree_leaves(list(self._optimizer.state.values())):
            if isinstance(tensor, torch.Tensor):
                self._follow.set_part(tensor, "optimizer_state")


def workspace_bytes(capability: tuple[int, int], configured: str) -> int:
    """What PyTorch gives a handle of cuBLAS to work with (`CUDABlas.cpp`; notes on CUDA).

    Args:
        configured: `CUBLAS_WORKSPACE_CONFIG`, pairs of a size in KiB and a count, as in `:4096:8`.
    """
    sizes = re.findall(r":(\d+):(\d+)", configured)
    default = [(4096, 8)] if capability >= (9, 0) else [(4096, 2), (16, 8)]
    return sum(int(size) * int(count) for size, count in sizes or default) << 10


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """An empty tensor of the same form; under a fake mode, one without data."""
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _implementation(group: dict[str, Any]) -> dict[str, Any]:
    """The default of parameters on a GPU, which an optimizer does not choose for fake tensors."""
    unset = "foreach" in group and group["foreach"] is None and not group.get("fused")
    return {"foreach": True} if unset and not group.get("differentiable") else {}

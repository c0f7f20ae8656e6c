"""What one training step computes and moves, counted before training without memory or a GPU.

The step runs once on fake tensors, which have a device, a shape and a type but no elements. So
PyTorch itself decides what runs: which operators, in which precision under autocast, and what is
computed again in the backward pass. Of a compiled model it is the model as written that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from traceprobe.capture.machine.hardware import world_size
from traceprobe.capture.machine.tf32 import supports_tf32, tf32_allowed

_MAX_REASON = 160


def work(
    model: Any,
    loss: Callable[..., Any],
    *batch: Any,
    optimizer: Any = None,
    micro_batches: int = 1,
) -> dict[str, Any]:
    """Operations and bytes of a step, for `record.describe(**work(...))`.

    Nothing is computed, and model, batch and optimizer stay as they are.

    Args:
        model: a `torch.nn.Module`, compiled, in DDP or neither.
        loss: called with the model and the batch, returns the scalar that `backward` starts from.
            Autocast belongs inside.
        batch: the arguments of a micro-batch, of which only shapes and types count.
        optimizer: the `torch.optim.Optimizer` that the step ends with, if its bytes are to count.
        micro_batches: forward and backward passes in a step.

    Returns:
        `flops_per_step`: floating point operations of a step as the model defines it, on all ranks:
        two for a multiplication and an addition, recomputation not counted.
        `work`: the same for one rank, in detail; see `docs/roofline.md`. Where the step cannot be
        counted, `work_missing` says why and nothing else is there.
    """
    try:
        layers = list(_layers(model))
        phases = _count(layers[-1], loss, batch, micro_batches)
    except Exception as error:  # whatever a user's model may raise: a recording must not end by it
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"work_missing": reason[:_MAX_REASON]}
    total = sum(sum(phase["model_flops"].values()) for phase in phases.values())
    counted: dict[str, Any] = {**phases, "compiled": any(map(_is_compiled, layers))}
    if optimizer is not None:
        counted["optimizer"] = {"bytes": optimizer_bytes(optimizer)}
    return {"flops_per_step": total * world_size(), "work": counted}


def optimizer_bytes(optimizer: Any) -> int | None:
    """Bytes that an update of all parameters has to read and write at least; None if unknown.

    SGD reads gradient and weight and writes the weight; a moment is read and written besides.
    """
    from torch import optim

    total = 0
    for group in optimizer.param_groups:
        if isinstance(optimizer, (optim.Adam, optim.AdamW)):
            accesses = 9 if group["amsgrad"] else 7
        elif isinstance(optimizer, optim.SGD):
            accesses = 5 if group["momentum"] else 3
        else:
            return None
        total += accesses * sum(p.nbytes for p in group["params"] if p.requires_grad)
    return total


def _count(
    model: Any, loss: Callable[..., Any], batch: Any, micro_batches: int
) -> dict[str, dict[str, Any]]:
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    from traceprobe.capture.flop_counter import FlopCounter

    device = next(model.parameters()).device
    allowed = tf32_allowed() if supports_tf32(device) else {"matmul": False, "convolution": False}

    class Step(torch.nn.Module):  # type: ignore[misc]
        """The whole step, so that what is computed again finds the same fake parameters."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, counting: FlopCounter, *batch: Any) -> None:
            counting.phase = "forward"
            total = loss(self.model, *batch)
            gradient = torch.ones_like(total)
            counting.phase = "backward"
            total.backward(gradient)

    # The first pass finds no gradients; further ones add theirs to those.
    passes = [FlopCounter(allowed) for _ in range(min(micro_batches, 2))]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, _without_graph(model):
        named = [*model.named_parameters(), *model.named_buffers()]
        fakes = {f"model.{name}": mode.from_tensor(tensor) for name, tensor in named}
        inputs = tree_map_only(
            torch.Tensor,
            lambda t: torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device),
            batch,
        )
        step = Step()
        for counting in passes:
            with counting:
                torch.func.functional_call(step, fakes, (counting, *inputs))
    weights = [1, micro_batches - 1]
    return {
        name: _sum([(c.tallies[name], w) for c, w in zip(passes, weights, strict=False)])
        for name in passes[0].tallies
    }


def _sum(tallies: list[tuple[Any, int]]) -> dict[str, Any]:
    """The tallies of a phase, each as often as it counts."""
    precisions = sorted({name for tally, _ in tallies for name in tally.flops})
    return {
        "flops": {p: sum(t.flops[p] * w for t, w in tallies) for p in precisions},
        "model_flops": {p: sum(t.model_flops[p] * w for t, w in tallies) for p in precisions},
        "least_flops": {p: sum(t.least_flops[p] * w for t, w in tallies) for p in precisions},
        "bytes": sum(t.bytes * w for t, w in tallies),
        "matrix_bytes": sum(t.matrix_bytes * w for t, w in tallies),
    }


@contextmanager
def _without_graph(model: Any) -> Iterator[None]:
    """A captured CUDA graph hides the model's own `forward` behind an attribute of the instance."""
    captured = vars(model).pop("forward", None)
    try:
        yield
    finally:
        if captured is not None:
            model.forward = captured


def _layers(model: Any) -> Iterator[Any]:
    """A model and, one inside the other, what torch.compile or DistributedDataParallel wrap."""
    import torch

    while True:
        yield model
        if "_orig_mod" in model._modules:
            model = model._modules["_orig_mod"]
        elif isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return


def _is_compiled(layer: Any) -> bool:
    return "_orig_mod" in layer._modules or layer._compiled_call_impl is not None

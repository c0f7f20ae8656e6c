"""The program's optimizers with their updates fused into few kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from traceprobe.capture.oracle.blocks import Unavailable

ALREADY = "the optimizers are fused already"
NO_FORM = "the optimizers have no fused form for what they update"
_SCALING = "_step_supports_amp_scaling"
_MISSING = object()


@contextmanager
def fused(optimizers: list[Any]) -> Iterator[None]:
    """Those optimizers that have a fused form are so for as long as this lasts.

    Args:
        optimizers: all of the program.

    Raises:
        Unavailable: none has one, or all are fused.
    """
    # A wrapper of an optimizer has the same groups.
    single = {id(optimizer.param_groups): optimizer for optimizer in optimizers}.values()
    able = [optimizer for optimizer in single if _is_able(optimizer)]
    if not able:
        raise Unavailable(ALREADY if any(map(_is_fused, optimizers)) else NO_FORM)
    with ExitStack() as held:
        for optimizer in able:
            held.enter_context(_fused(optimizer))
        yield


@contextmanager
def _fused(optimizer: Any) -> Iterator[None]:
    before = [(group, group.get("foreach"), group.get("fused")) for group in optimizer.param_groups]
    scaling = vars(optimizer).get(_SCALING, _MISSING)
    _move_counts(optimizer, lambda parameter: parameter.device)
    for group, _, _ in before:
        group.update(foreach=False, fused=True)
    setattr(optimizer, _SCALING, True)
    try:
        yield
    finally:
        for group, foreach, was_fused in before:
            group.update(foreach=foreach, fused=was_fused)
        if scaling is _MISSING:
            delattr(optimizer, _SCALING)
        else:
            setattr(optimizer, _SCALING, scaling)
        _move_counts(optimizer, lambda _: "cpu")


def _move_counts(optimizer: Any, place: Callable[[Any], Any]) -> None:
    """Steps are counted beside the weights by a fused optimizer, on the host by others."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state and not group.get("capturable"):
                state["step"] = state["step"].to(place(parameter))


def _is_fused(optimizer: Any) -> bool:
    return any(group.get("fused") for group in optimizer.param_groups)


def _is_able(optimizer: Any) -> bool:
    """Whether an optimizer has a fused form that takes all that it updates now."""
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [optimizer.state.get(parameter, {}) for parameter in parameters]
    return (
        bool(parameters)
        and all("fused" in group for group in optimizer.param_groups)
        and not _is_fused(optimizer)
        and not any(group.get("differentiable") for group in optimizer.param_groups)
        and all(isinstance(s.get("step", torch.tensor(0)), torch.Tensor) for s in states)
        and all(p.is_floating_point() and p.device == parameters[0].device for p in parameters)
        and parameters[0].device.type in ("cpu", "cuda")
        and not any(p.grad is not None and p.grad.layout != torch.strided for p in parameters)
    )

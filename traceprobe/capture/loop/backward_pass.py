"""Backward passes: whether this thread is in one, and being told when the next one is over.

Hooks of parameters may update them as soon as their gradients are there. The engine of autograd
then runs their code inside a node, on a GPU on a thread of its own; a profiler that begins or ends
there brings the program down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

_NO_PASS = -1
"""Number of the backward pass of a thread that is in none."""


def in_backward_pass() -> bool:
    """Whether this thread runs a part of a backward pass.

    A PyTorch that cannot tell is older than 2.0, and has no hooks that show updates either.
    """
    import torch

    number = getattr(torch._C, "_current_graph_task_id", None)
    return number is not None and bool(number() != _NO_PASS)


def call_around_backward_passes(then: Callable[[], None]) -> None:
    """Have `then` called before and after each backward pass, on the thread that asks for it.

    Before, too: the pass that runs now began without being seen. A pass inside of another one
    (of what a checkpoint computed again) is a part of it, and after one that fails the program is
    left to its error.
    """
    import torch

    backward = torch.autograd.backward

    @wraps(backward)
    def watched(*args: Any, **options: Any) -> Any:
        outermost = not in_backward_pass()
        if outermost:
            then()
        given = backward(*args, **options)
        if outermost:
            then()
        return given

    torch.autograd.backward = watched  # Tensor.backward calls it by this name, too

"""Places in the step of a program that knows nothing of us, and what is done when it comes by.

    between    an update has ended the step before
    batch      a DataLoader is asked for a batch
    forward    a module is called
    backward   gradients are asked for
    optimizer  an optimizer begins its update

A step passes a place when it comes there for the first time. The hooks are PyTorch's own where it
has one; what takes the place of a function calls it with what it was given.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from traceprobe.capture.loader.batch_feed import Give, feed

_OF_COMPILED = "Using `torch.compile\\(module\\)` when there are global hooks"
"""What PyTorch warns of where a compiled module is the first of a step: the hook is gone before
anything is compiled."""
PLACES = ("between", "batch", "forward", "backward", "optimizer")


class Places:
    """The places of the steps of one thread, while `installed`.

    `actions` has what is done at a place, by its name; `passed` counts the steps that came by.
    """

    def __init__(self) -> None:
        self.actions: dict[str, Callable[[], None]] = {}
        self.passed: Counter[str] = Counter()
        self.steps = 0
        self.asked: Counter[tuple[int, int]] = Counter()
        """Batches that were asked for, by the loader's workers and the batches its queues hold."""
        self.banned: set[str] = set()
        """Places without a hook."""
        self._home = (os.getpid(), threading.get_ident())
        self._seen: set[str] = set()
        self._loading = False
        self._next_module: Any = None
        self._installed = False

    def step(self) -> None:
        """A step begins."""
        self.steps += 1
        self._seen.clear()
        if self._installed:
            self._pass("between")
            self._await_module()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The hooks; the program is as it was afterwards."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        backward, source = torch.autograd.backward, feed.source

        def announced(*args: Any, **options: Any) -> Any:
            self._pass("backward")
            return backward(*args, **options)

        optimizer = register_optimizer_step_pre_hook(lambda *_: self._pass("optimizer"))
        torch.autograd.backward = announced  # Tensor.backward calls it by this name, too
        feed.source = self._next_batch
        self._installed = True
        try:
            with _unwarned():
                yield
        finally:
            self._installed = False
            optimizer.remove()
            if torch.autograd.backward is announced:
                torch.autograd.backward = backward
            feed.source = source
            self._forget_module()

    def _pass(self, place: str) -> None:
        # A forked worker of a DataLoader has the hooks of its parent.
        if place in self._seen or self._home != (os.getpid(), threading.get_ident()):
            return
        self._seen.add(place)
        self.passed[place] += 1
        act = self.actions.get(place)
        if act is not None:
            act()

    def _next_batch(self, iterator: Any, give: Give) -> Any:
        workers = getattr(iterator, "_num_workers", None)
        if workers is not None:  # and not what gives the batches of a DataLoader
            self.asked[workers, workers * (getattr(iterator, "_prefetch_factor", None) or 0)] += 1
        self._pass("batch")
        outer, self._loading = self._loading, True
        try:
            return give(iterator)
        finally:
            self._loading = outer

    def _await_module(self) -> None:
        """Hear of the next call of a module, and of none after it.

        A hook of all modules costs every call of one some time, and has compiled programs compile
        again where they see it: this one is gone before the module computes.
        """
        if self._next_module is None and "forward" not in self.banned:
            from torch.nn.modules.module import register_module_forward_pre_hook

            self._next_module = register_module_forward_pre_hook(self._called)

    def _called(self, *_: Any) -> None:
        # A loader may transform with modules.
        if not self._loading and self._home == (os.getpid(), threading.get_ident()):
            self._forget_module()
            self._pass("forward")

    def _forget_module(self) -> None:
        if self._next_module is not None:
            self._next_module.remove()
            self._next_module = None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Keeps one warning from a program; what it does to its warnings meanwhile stays."""
    warnings.filterwarnings("ignore", _OF_COMPILED)
    ours = warnings.filters[0]
    try:
        yield
    finally:
        with suppress(ValueError):  # the program has begun its filters anew
            warnings.filters.remove(ours)  # type: ignore[attr-defined]

"""Imports PyTorch without its compiler. Programs that tests start import this first.

The first optimizer of a process imports `torch._dynamo`, and a profiler `torch._inductor`. That
takes longer than to import PyTorch itself, and is of no use to a program that compiles nothing.
They are imported here as well once anything is asked of them but what those two ask. No function of
Python answers them, which a profiler would show.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

DYNAMO, INDUCTOR = "torch._dynamo", "torch._inductor"


class Postponed(ModuleType):
    """Stands for a module of the compiler until it is needed."""

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__spec__"):
            raise AttributeError(name)
        torch = sys.modules["torch"]
        for postponed in [key for key, held in sys.modules.items() if isinstance(held, Postponed)]:
            del sys.modules[postponed]
            vars(torch).pop(postponed.removeprefix("torch."), None)
        return getattr(importlib.import_module(self.__name__), name)


class Uncompiled(Postponed):
    """What optimizers ask."""

    graph_break = bool

    @staticmethod
    def disable(function: Any, *_: Any, **__: Any) -> Any:
        """What is not compiled anyway."""
        return function


def postpone() -> None:
    """Import PyTorch; of its compiler only what stands for it."""
    sys.modules[DYNAMO] = Uncompiled(DYNAMO)
    gc.disable()  # it would run over all that is being imported, again and again
    import torch

    gc.enable()
    settings = Postponed(f"{INDUCTOR}.config")
    settings.triton = SimpleNamespace(cudagraphs=False)  # all that a profiler asks
    inductor = Postponed(INDUCTOR)
    inductor.config = settings
    sys.modules[INDUCTOR], sys.modules[settings.__name__] = inductor, settings
    torch._inductor, torch._dynamo = inductor, sys.modules[DYNAMO]


if DYNAMO not in sys.modules:
    postpone()

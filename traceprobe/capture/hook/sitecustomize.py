"""Lets a recording begin in a program that knows nothing of it.

Python imports this module at start-up when its folder is on PYTHONPATH. The folder holds nothing
else and is taken off the program's path again, so that the program finds what it would find alone;
only the package `traceprobe` is found where this file lies. A sitecustomize that was hidden runs.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_REQUESTS = {
    "TRACEPROBE_PLAN",
    "TRACEPROBE_TRIALS",
    "TRACEPROBE_PROBES",
    "TRACEPROBE_WATCH",
    "TRACEPROBE_MEMORY_PREDICTION",
}
_PACKAGE = "traceprobe"
_OPTIMIZERS, _LOADERS = "torch.optim.optimizer", "torch.utils.data.dataloader"
_COMPILER = ("torch._inductor.compile_fx", "torch._inductor.graph")
"""What compiles, of which a recording notes what it makes."""
_OLDEST = (3, 10)
_HERE = Path(__file__).resolve().parent


class _Finder(importlib.abc.MetaPathFinder):
    """Finds this package, and waits for torch: who never trains is left alone."""

    def __init__(self) -> None:
        recorded = "TRACEPROBE_PLAN" in os.environ
        self._awaited = {_OPTIMIZERS, _LOADERS, *(_COMPILER if recorded else ())}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _PACKAGE:
            folder = _HERE.parents[1]
            return importlib.util.spec_from_file_location(
                name, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
        if name not in self._awaited:
            return None
        self._awaited.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenInstall(spec.loader)
        return spec


class _ThenInstall(importlib.abc.Loader):
    """Adds a last line to the execution of a module."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__name__ in _COMPILER:
            from traceprobe.capture.owners.kernel_owners import watch_module

            watch_module(module.__name__, module)
            return
        if sys.version_info < _OLDEST:
            wanted = ".".join(map(str, _OLDEST))
            raise SystemExit(f"traceprobe records programs that run on Python {wanted} or later")
        if module.__name__ == _LOADERS:
            from traceprobe.capture.loader.loader_hook import install_loader_hook

            install_loader_hook(module)
        else:
            from traceprobe.capture.loop.optimizer_hook import install_optimizer_hook

            install_optimizer_hook(module)


def _step_aside() -> None:
    """Take this folder off the path, and run the sitecustomize that would have run without it."""
    sys.path[:] = [folder for folder in sys.path if not _is_here(folder)]
    ours = sys.modules.pop(__name__, None)
    try:
        __import__(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        if ours is not None:
            sys.modules[__name__] = ours


def _is_here(folder: str) -> bool:
    try:
        return Path(folder or ".").resolve() == _HERE
    except OSError:
        return False


if _REQUESTS & os.environ.keys():
    sys.meta_path.insert(0, _Finder())
_step_aside()

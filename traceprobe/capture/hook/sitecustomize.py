"""Lets a recording begin in a program that knows nothing of it.

Python imports this module at start-up when its folder is on PYTHONPATH. It waits until torch's
optimizers are imported; processes that never train are left alone.
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

_TRIGGER = "torch.optim.optimizer"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds torch's optimizer module as others would, and adds a last line to its execution."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _TRIGGER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenInstall(spec.loader)
        return spec


class _ThenInstall(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        from traceprobe.capture.unaware import install

        install(module)


def _run_hidden() -> None:
    """This folder hides another sitecustomize of the environment: run that one too."""
    own = Path(__file__).resolve().parent
    for folder in sys.path:
        other = Path(folder or ".") / "sitecustomize.py"
        if other.is_file() and other.resolve().parent != own:
            spec = importlib.util.spec_from_file_location("_hidden_sitecustomize", other)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if {"TRACEPROBE_PLAN", "TRACEPROBE_TRIALS", "TRACEPROBE_FORECAST"} & os.environ.keys():
    sys.meta_path.insert(0, _AfterImport())
_run_hidden()

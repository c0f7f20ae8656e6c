"""Modules that are imported when a test uses them, since collecting tests must not load PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module, which is imported when one of its attributes is asked for."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks every global whether it is a fixture
            raise AttributeError(attribute)
        return getattr(import_module(self.__name__), attribute)

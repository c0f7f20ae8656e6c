"""Which source files are the program's own, and what they are called: never by an absolute path."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import PurePath

_INSTALLED = {"site-packages", "dist-packages"}
_GENERATED = ("torchinductor_", "ipykernel_", "triton")
"""Beginnings of folders of code that a compiler or a notebook wrote."""
_ROOTS = (".git", "pyproject.toml", "setup.py")
_HIGHEST = 8
"""Folders above a file in which the root of its repository is looked for."""
_THIS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class OwnCode:
    """Tells the program's files from those that are installed, generated or Python's.

    Args:
        script: file of `__main__`; None where there is none. Its folder is the program's, wherever
            it lies.
        folder: that the program works in.
    """

    def __init__(self, script: str | None, folder: str) -> None:
        self._home = os.path.dirname(os.path.realpath(script)) if script else None
        self._folder = os.path.realpath(folder)
        self._libraries = {
            os.path.realpath(path)
            for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), _torch(), _THIS)
            if path
        }

    def name(self, file: str) -> str | None:
        """What a file of the program is called, relative to the program; None of any other.

        Relative to the script's folder, else the working folder, else the repository, else the
        outermost package that it is in.
        """
        if not file or file.startswith("<"):
            return None
        path = os.path.realpath(file)
        if self._home is not None and _inside(path, self._home):
            local = os.path.relpath(path, self._home)
            return None if _is_foreign(local) or self._is_library(path, self._home) else local
        if _is_foreign(path) or self._is_library(path):
            return None
        if _inside(path, self._folder):
            return os.path.relpath(path, self._folder)
        return os.path.relpath(path, _repository(path) or _above_package(path))

    def _is_library(self, path: str, home: str = "") -> bool:
        """Whether a file is in the folder of a library, and that does not hold the program."""
        return any(
            _inside(path, library) and not (home and _inside(home, library))
            for library in self._libraries
        )


def own_code() -> OwnCode:
    """That of this process."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return OwnCode(script if isinstance(script, str) else None, os.getcwd())


def _torch() -> str | None:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) if file else None


def _is_foreign(path: str) -> bool:
    parts = PurePath(path).parts[:-1]
    return any(part in _INSTALLED or part.startswith(_GENERATED) for part in parts)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _repository(path: str) -> str | None:
    folder = os.path.dirname(path)
    for _ in range(_HIGHEST):
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _ROOTS):
            return folder
        folder = os.path.dirname(folder)
    return None


def _above_package(path: str) -> str:
    folder = os.path.dirname(path)
    while os.path.exists(os.path.join(folder, "__init__.py")) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder

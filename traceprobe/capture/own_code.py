"""Which code is the program's own, and what its lines are called."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path

LONGEST_NAME = 200
"""Characters of the name of a line."""
_INSTALLED = {"site-packages", "dist-packages"}
_RECORDER = str(Path(__file__).resolve().parent) + os.sep


@cache
def is_own(file: str) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor the recorder's.

    Args:
        file: `co_filename` of its code.
    """
    if file.startswith("<") or not _INSTALLED.isdisjoint(Path(file).parts):
        return False
    return not os.path.realpath(file).startswith((*_libraries(), _RECORDER))


def line_name(file: str, line: int, function: str) -> str:
    """A line as Kineto writes one, `data/pictures.py(57): decode`.

    The file is relative to the folder that it can be imported from; elsewhere it has no folder.
    """
    path = os.path.realpath(file)
    inside = [path[len(root) :] for root in _roots() if path.startswith(root)]
    name = min(inside, key=len, default=Path(path).name)
    return f"{name.replace(os.sep, '/')}({line}): {function}"[-LONGEST_NAME:]


@cache
def _libraries() -> tuple[str, ...]:
    """Folders of Python, of what is installed and of PyTorch, with separators at their ends."""
    kinds, paths = ("stdlib", "platstdlib", "purelib", "platlib"), sysconfig.get_paths()
    folders = {paths[kind] for kind in kinds if kind in paths}
    torch = getattr(sys.modules.get("torch"), "__file__", None)  # it may run from its source
    if torch:
        folders.add(str(Path(torch).parent))
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def _roots() -> list[str]:
    folders = {os.path.realpath(folder or ".") for folder in ["", *sys.path]}
    return [folder.rstrip(os.sep) + os.sep for folder in folders]

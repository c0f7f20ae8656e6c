"""Which source files are the program's own, and what they are called: never by an absolute path."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}
_GENERATED = ("torchinductor_", "ipykernel_", "triton")
"""Beginnings of folders of code that a compiler or a notebook wrote."""
_ROOTS = (".git", "pyproject.toml", "setup.py")
_HIGHEST = 8
"""Folders above a file in which the root of its repository is looked for."""
_THIS = Path(__file__).resolve().parents[2]


class OwnCode:
    """Tells the program's files from those that are installed, generated or Python's.

    Args:
        script: file of `__main__`; None where there is none. Its folder is the program's, wherever
            it lies.
        folder: that the program works in.
    """

    def __init__(self, script: str | None, folder: Path) -> None:
        self._home = Path(script).resolve().parent if script else None
        self._folder = folder.resolve()
        self._libraries = [
            Path(path).resolve()
            for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), _torch(), _THIS)
            if path
        ]
        self._known: dict[str, str | None] = {}

    def name(self, file: str) -> str | None:
        """What a file of the program is called, relative to the program; None of any other.

        Relative to the script's folder, else the working folder, else the repository, else the
        outermost package that it is in.
        """
        if file not in self._known:
            unreal = not file or file.startswith("<")
            self._known[file] = None if unreal else self._name(Path(file).resolve())
        return self._known[file]

    def _name(self, path: Path) -> str | None:
        home = self._home
        if home is not None and path.is_relative_to(home):
            libraries = [library for library in self._libraries if not home.is_relative_to(library)]
            local = path.relative_to(home)
        else:
            libraries, home, local = self._libraries, None, path
        if _is_foreign(local) or any(map(path.is_relative_to, libraries)):
            return None
        if home is None:
            inside = path.is_relative_to(self._folder)
            local = path.relative_to(self._folder if inside else _above(path))
        return local.as_posix()


def own_code() -> OwnCode:
    """That of this process."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return OwnCode(script if isinstance(script, str) else None, Path.cwd())


def _torch() -> Path | None:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return Path(file).parent if file else None


def _is_foreign(path: Path) -> bool:
    folders = path.parent.parts
    return any(part in _INSTALLED or part.startswith(_GENERATED) for part in folders)


def _above(path: Path) -> Path:
    """The root of a file's repository, else the folder that its outermost package is in."""
    for folder in list(path.parents)[:_HIGHEST]:
        if any((folder / mark).exists() for mark in _ROOTS):
            return folder
    folder = path.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        folder = folder.parent
    return folder

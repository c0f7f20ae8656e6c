"""Python processes of ours import what this one does, and nothing from the working folder.

People work in folders of strangers: a `pickle.py` beside a trace must stay a file like any other.
Python itself puts the working folder first on the import path of `python -c` and `python -m`, and
takes an empty entry of PYTHONPATH for it. Only this module knows how a process of ours is started.

It is imported before anything else, so it imports nothing that the interpreter has not loaded, and
nothing from __future__.
"""

import os
import sys

SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def leave_working_folder() -> None:
    """Take the working folder off the import path of this process."""
    sys.path[:] = import_path()


def command(code: str, *arguments: str) -> list[str]:
    """The command line of a Python process that runs some code with the import path of this one.

    It is isolated (`-I`): neither the working folder nor variables of Python reach it.
    """
    first = (
        f"import sys; sys.path[:] = {import_path()!r}; "
        f"sys.dont_write_bytecode = {sys.dont_write_bytecode!r}; "
        f"sys.pycache_prefix = {sys.pycache_prefix!r}; "
    )
    return [sys.executable, "-I", "-c", first + code, *arguments]


def script(path: str, *arguments: str) -> list[str]:
    """The same for a script; the folder that it lies in is not on its import path."""
    return command(SCRIPT, path, *arguments)


def import_path() -> list[str]:
    """The import path of this process without the working folder.

    A working folder from which traceprobe itself comes, or the interpreter's own modules do, cannot
    be left out. It comes last then, so that it hides nothing.
    """
    here = _place(".")
    kept, last = [], []
    for entry in sys.path:
        if not os.path.isabs(entry):
            continue
        if here is None or _place(entry) != here:
            kept.append(entry)
        elif _place(entry) in _needed():
            last.append(entry)
    return kept + last


def _needed() -> set[str | None]:
    """Folders without which nothing could be imported."""
    package = os.path.dirname(os.path.dirname(__file__))
    folders = [os.path.dirname(package), os.path.dirname(os.__file__)]
    site = sys.modules.get("site")
    if site is not None:
        folders += [*site.getsitepackages(), site.getusersitepackages()]
    return {_place(folder) for folder in folders}


def _place(folder: str) -> str | None:
    """A folder without links; None if it is gone."""
    try:
        return os.path.realpath(folder)
    except OSError:  # the working folder was removed
        return None

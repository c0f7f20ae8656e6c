"""What a program is called in records: the base name of its file, and nothing else of its command.

Arguments and variables hold tokens, addresses and folders, so none of them is part of a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_SCRIPT = re.compile(r"(?!-)[^\s=]+\.py")
"""Of a word that stands anywhere: neither an option nor a variable nor the text of a shell."""
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_VARIABLE = re.compile(r"\w+=.*", re.DOTALL)
_OF_ENV = {"-u", "--unset", "-C", "--chdir"}
"""Options of `env` that a value follows."""
_LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
"""Modules that start the program named after them."""


def program_name(program: Sequence[str]) -> str:
    """The script or module that a command runs, whatever launches it; else the executable.

    What is given to Python as text is called "python".

    Args:
        program: the command, as it is started.
    """
    words = _without_variables(program)
    for place, word in enumerate(words):
        if _SCRIPT.fullmatch(word):
            return PurePath(word).stem
        if _PYTHON.fullmatch(PurePath(word).name):
            name = _of_python(words[place + 1 :])
            if name is not None:
                return name
    executable = PurePath(words[0]).stem if words else ""
    return "program" if not executable or re.search(r"\s", executable) else executable


def _without_variables(program: Sequence[str]) -> list[str]:
    """The command without `env` and what that sets."""
    words = list(program)
    after_env = False
    while words:
        word = words[0]
        if after_env and word in _OF_ENV:
            del words[:2]
        elif _VARIABLE.fullmatch(word) or (after_env and word.startswith("-")):
            del words[0]
        elif PurePath(word).name == "env" and not after_env:
            after_env = True
            del words[0]
        else:
            return words
    return ["env"] if after_env else []


def _of_python(words: Sequence[str]) -> str | None:
    """What Python is asked to run; None where that is a launcher of something else."""
    rest = iter(words)
    for word in rest:
        if word == "-":
            break
        if not word.startswith("-"):
            return PurePath(word).stem
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter == "c":
                return "python"
            if letter in "mWX":
                value = word[place:] or next(rest, "")
                if letter == "m":
                    return None if value in _LAUNCHERS else value.rpartition(".")[2] or "python"
                break
    return "python"

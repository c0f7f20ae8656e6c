"""What this process was asked to do, by a variable that whoever started it has set.

Variables outlive what they were set for: in a shell, in the script of a job, in a container. What
no longer holds is said in one line, once, and the program runs as it would without.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

_LARGEST = 1 << 20
"""Bytes of a file of orders; ours have some hundred."""


class _Orders(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(self, folder: str) -> None: ...

    @property
    def folder(self) -> str: ...


Orders = TypeVar("Orders", bound=_Orders)


def given(variable: str, kind: type[Orders]) -> Orders | None:
    """The orders in the file that a variable names; None without any that hold."""
    path = os.environ.get(variable)
    if not path:
        return None
    try:
        found = kind(**json.loads(_content(path)))
        plain = kind(folder="")
        for field in fields(found):
            wanted, value = type(getattr(plain, field.name)), getattr(found, field.name)
            if not isinstance(value, (int, float) if wanted is float else wanted):
                raise ValueError(field.name)
    except (OSError, ValueError, TypeError, RecursionError):
        _stale(variable)
        return None
    return found if folder(variable, found.folder) else None


def folder(variable: str, name: str) -> str | None:
    """A folder to leave results in; None where it is gone."""
    if Path(name).is_dir():
        return name
    _stale(variable)
    return None


def _content(path: str) -> bytes:
    """All of a small file; a FIFO is not opened, for it would wait for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - of what is opened next
        raise ValueError(path)
    with Path(path).open("rb") as file:
        return file.read(_LARGEST)


def _stale(variable: str) -> None:
    os.environ.pop(variable, None)
    if sys.stderr is not None:
        sys.stderr.write(
            f"traceprobe: {variable} is left over from a run that has ended, so nothing is "
            f"recorded; unset it\n"
        )

"""Environment variables by which traceprobe tells the program that it starts what to do.

The parent sets a variable to the path of a file, or of a folder for results; each process of the
program reads it. Variables outlive what they were set for: in a shell, in the script of a job, in a
container. What no longer holds is said in one line, once, and the program runs as it would without.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

HOOK = Path(__file__).with_name("hook")
_LARGEST_REQUEST = 1 << 20
"""Bytes of a file that says what to do; ours have some hundred."""


class _Request(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(self, folder: str) -> None: ...

    @property
    def folder(self) -> str: ...


Request = TypeVar("Request", bound=_Request)


def program_environment(
    variable: str, path: Path, extra: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The environment of the program: this process's, with the request and the hook on its path.

    The hook's folder holds `sitecustomize` alone, which lets the program find this package and
    nothing that is installed beside it.

    Args:
        variable, path: name of the variable with the path of the request, and that path.
        extra: variables for the program alone.
    """
    variables = {**os.environ, **(extra or {})}
    return {
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **variables,
        variable: str(path),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOK), variables.get("PYTHONPATH")])),
    }


def write_request(request: _Request, name: str) -> Path:
    """Path for the variable, after a request is written into its folder under a name."""
    path = Path(request.folder) / name
    path.write_text(json.dumps(asdict(request), sort_keys=True))
    return path


def read_request(variable: str, kind: type[Request]) -> Request | None:
    """The request in the file that a variable names; None without one that still holds."""
    path = os.environ.get(variable)
    if not path:
        return None
    try:
        request = kind(**json.loads(_content(path)))
        default = kind(folder="")
        for field in fields(request):
            wanted, value = type(getattr(default, field.name)), getattr(request, field.name)
            if not isinstance(value, (int, float) if wanted is float else wanted):
                raise ValueError(field.name)
    except (OSError, ValueError, TypeError, RecursionError):
        _warn_of_stale(variable)
        return None
    return request if request_folder(variable, request.folder) else None


def request_folder(variable: str, name: str) -> str | None:
    """A folder to leave results in; None where it is gone."""
    if Path(name).is_dir():
        return name
    _warn_of_stale(variable)
    return None


def _content(path: str) -> bytes:
    """All of a small file; a FIFO is not opened, for it would wait for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - of what is opened next
        raise ValueError(path)
    with Path(path).open("rb") as file:
        return file.read(_LARGEST_REQUEST)


def _warn_of_stale(variable: str) -> None:
    os.environ.pop(variable, None)
    if sys.stderr is not None:
        sys.stderr.write(
            f"traceprobe: {variable} is left over from a run that has ended, so nothing is "
            f"recorded; unset it\n"
        )

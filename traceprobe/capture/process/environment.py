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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

HOOK = Path(__file__).parents[1] / "hook"
_LARGEST_REQUEST = 1 << 20
"""Bytes of a file that says what to do; ours have some hundred."""


AnyPlan = TypeVar("AnyPlan", bound="Plan")


@dataclass(frozen=True)
class Plan:
    """What the ranks of a program are to measure.

    Args:
        folder: where each rank leaves its results and its progress.
        warmup: steps before anything is measured (compilation, caches, allocator).
        workload: name and settings, copied into the results.
    """

    VARIABLE: ClassVar[str]
    """Environment variable with the path of the plan."""

    folder: str = ""
    warmup: int = 5
    workload: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """For the environment variable, once the plan is saved."""
        return Path(self.folder) / "plan.json"

    def save(self) -> Path:
        """Its path, after the plan is written into its folder."""
        self.path.write_text(json.dumps(asdict(self), sort_keys=True))
        return self.path

    @classmethod
    def current(cls: type[AnyPlan]) -> AnyPlan | None:
        """The plan that this process was started with; None without one that still holds."""
        path = os.environ.get(cls.VARIABLE)
        if not path:
            return None
        try:
            plan, default = cls(**json.loads(_content(path))), cls()
            for each in fields(cls):
                wanted, value = type(getattr(default, each.name)), getattr(plan, each.name)
                if not isinstance(value, (int, float) if wanted is float else wanted):
                    raise ValueError(each.name)
        except (OSError, ValueError, TypeError, RecursionError):
            _warn_of_stale(cls.VARIABLE)
            return None
        return plan if request_folder(cls.VARIABLE, plan.folder) else None


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

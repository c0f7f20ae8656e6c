"""Where a program is: the modules and the line of its own code that an operator is called from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from traceprobe.capture.blame.function_name import function_name
from traceprobe.capture.blame.module_names import ModuleNames
from traceprobe.capture.blame.own_code import own_code
from traceprobe.capture.owners.owner_table import Owner

_DEEPEST = 400
"""Frames that are looked at."""
_MODULE_CALL = "_call_impl"


class ProgramPlace:
    """Looks at frames; nothing is hooked, so that compiled code stays compiled."""

    def __init__(self) -> None:
        self._own = own_code()
        self._names = ModuleNames()
        self._files: dict[CodeType, str | None] = {}

    def here(self, above: int = 1) -> Owner:
        """Modules and line of the calling thread.

        Args:
            above: frames of the caller that are left out.
        """
        line, modules = None, []
        for frame in _frames(above + 1):
            code = frame.f_code
            if code.co_name == _MODULE_CALL and code.co_varnames:
                module = frame.f_locals.get(code.co_varnames[0])
                if hasattr(module, "named_modules"):
                    modules.append(module)
            elif line is None:
                line = self._line(frame)
        return Owner(tuple(self.named(modules[::-1])), line)

    def line(self, above: int = 1) -> str | None:
        """The line of the calling thread alone; `above` as of `here`."""
        return next(filter(None, map(self._line, _frames(above + 1))), None)

    def named(self, modules: list[Any]) -> list[str]:
        """Names of modules from the outermost on; a wrapper and what it wraps have one."""
        found = [self._names(module) for module in modules]
        return list(dict.fromkeys(found))

    def file(self, code: CodeType) -> str | None:
        """What the file of some code is called; None of what is not the program's."""
        if code not in self._files:
            self._files[code] = self._own.name(code.co_filename)
        return self._files[code]

    def _line(self, frame: FrameType) -> str | None:
        file = self.file(frame.f_code)
        name = function_name(frame.f_code.co_name)
        return None if file is None else f"{file}({frame.f_lineno}): {name}"


def _frames(above: int) -> Iterator[FrameType]:
    """The frames of this thread from the innermost on, but those of the caller.

    Args:
        above: frames of the caller that are left out.
    """
    frame: FrameType | None = sys._getframe(above + 1)
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back

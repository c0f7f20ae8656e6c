"""Where a program is: the modules and the line of its own code that an operator is called from."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

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
        frame: FrameType | None = sys._getframe(above + 1)
        line, modules = None, []
        for _ in range(_DEEPEST):
            if frame is None:
                break
            code = frame.f_code
            if code.co_name == _MODULE_CALL and code.co_varnames:
                module = frame.f_locals.get(code.co_varnames[0])
                if hasattr(module, "named_modules"):
                    modules.append(module)
            elif line is None and (file := self.file(code)) is not None:
                line = f"{file}({frame.f_lineno}): {code.co_name}"
            frame = frame.f_back
        return Owner(tuple(self.named(modules[::-1])), line)

    def named(self, modules: list[Any]) -> list[str]:
        """Names of modules from the outermost on; a wrapper and what it wraps have one."""
        found = [self._names(module) for module in modules]
        return list(dict.fromkeys(found))

    def file(self, code: CodeType) -> str | None:
        """What the file of some code is called; None of what is not the program's."""
        if code not in self._files:
            self._files[code] = self._own.name(code.co_filename)
        return self._files[code]

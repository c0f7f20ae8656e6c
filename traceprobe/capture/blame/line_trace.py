"""Which line of the program, and which module, a thread was in: the trace functions of Python.

What is noted are instants; what lasted from when to when is worked out later. A frame that suspends
(a generator) is left and entered again. The functions are slow, which is why they run in steps
whose times nobody uses, and bounded: a loop of the program may run through millions of lines.
"""

from __future__ import annotations

import statistics
import sys
import time
from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from traceprobe.capture.blame.function_name import function_name
from traceprobe.capture.blame.module_names import ModuleNames
from traceprobe.capture.blame.own_code import OwnCode

CALL, LINE, RETURN, MODULE = range(4)
FIELDS = 6
"""Numbers of an instant: ns of `perf_counter_ns`, kind, frame, code or module, line, and calls so
far of functions that are not followed, each of which took `LineTrace.call_ns`."""
MOST_INSTANTS = 2_000_000
"""Of a recording; each has 48 bytes."""
MOST_OF_CODE = 40_000
"""Instants of one function; what it does after them is its caller's line."""
TAKEN = "a debugger or a coverage tool traces the program"
_OTHER = -1
_CALLS, _RUNS = 100, 20
"""Calls, and runs of them, by which it is measured what the trace costs."""
_PARTS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}
"""Code that belongs to the line it stands in, and is entered for every item."""

TraceFunction = Callable[[FrameType, str, Any], Any]


class LineTrace:
    """Traces the thread that starts it.

    Args:
        own: which files are the program's.

    Attributes:
        instants: `FIELDS` numbers of each.
        codes: file and function, by number. modules: names, by number.
        updates: steps of optimizers that began.
        reason: why lines are missing; None where they are not.
        call_ns: what a call of a function that is not followed takes longer.
    """

    def __init__(self, own: OwnCode) -> None:
        self.instants = array("q")
        self.codes: list[tuple[str, str]] = []
        self.modules: list[str] = []
        self.updates = 0
        self.reason: str | None = None
        self.call_ns = 0.0
        self._calls = 0
        self._own = own
        self._names = ModuleNames()
        self._numbers: dict[str, int] = {}
        self._kinds: dict[int, int] = {}
        self._left: list[int] = []
        self._kept: list[CodeType] = []
        """Code that was looked at: what was gone could leave its id to another."""
        self._module_code: set[CodeType] = set()
        self._traced: list[tuple[FrameType, Any]] = []
        self._before: Any = None
        self._uninstall: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin, also with the frames that the thread is in already.

        A trace function that is set is left: there are modules then, and no lines.
        """
        import torch

        module = torch.nn.Module
        for place in ("_wrapped_call_impl", "_call_impl"):
            code = getattr(getattr(module, place, None), "__code__", None)
            if code is not None:
                self._module_code = {code}
                break
        _leave_uncompiled(self._enter, self._inside, self._in_module, self._profiled)
        if sys.gettrace() is None:
            untraced = _called()
            sys.settrace(self._enter)
            self._uninstall = _untrace
            self.call_ns = max(_called() - untraced, 0.0)
            self._trace_frames(sys._getframe(1))
            return
        self.reason = TAKEN
        if sys.getprofile() is None:
            sys.setprofile(self._profiled)
            self._uninstall = _unprofile

    def stop(self) -> None:
        """End, and leave every frame as it was."""
        if self._uninstall is not None:
            self._uninstall()
            self._uninstall = None
        for frame, before in self._traced:
            frame.f_trace = before
            frame.f_trace_lines = True
        self._traced.clear()

    @property
    def full(self) -> bool:
        """Whether there is no room for more."""
        return len(self.instants) >= MOST_INSTANTS * FIELDS

    def _trace_frames(self, frame: FrameType | None) -> None:
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        now = time.perf_counter_ns()
        for each in reversed(frames):
            kind = self._kind(each.f_code)
            if kind > _OTHER + 1:
                self._traced.append((each, each.f_trace))
                each.f_trace = self._inside
                self.instants.extend((now, CALL, id(each), kind - 2, each.f_lineno, self._calls))

    def _kind(self, code: CodeType) -> int:
        """_OTHER, 0 for calls of modules, 1 for updates, from 2 on the number of own code."""
        known = self._kinds.get(id(code))
        if known is not None:
            return known
        self._kept.append(code)
        try:
            kind = self._judge(code)
        except Exception:  # what a trace function raises would end the program
            kind = _OTHER
        self._kinds[id(code)] = kind
        return kind

    def _judge(self, code: CodeType) -> int:
        kind = _OTHER
        if code in self._module_code:
            kind = 0
        elif _is_update(code):
            kind = 1
        elif code.co_name not in _PARTS:
            name = self._own.name(code.co_filename)
            if name is not None:
                kind = len(self.codes) + 2
                self.codes.append((name, function_name(code.co_name)))
                self._left.append(MOST_OF_CODE)
        return kind

    def _enter(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        kind = self._kinds.get(id(frame.f_code))
        if kind is None:
            kind = self._kind(frame.f_code)
        if kind == _OTHER or event != "call":
            self._calls += 1
            return None
        if kind < 2:
            return self._special(frame, kind)
        number = kind - 2
        if self._left[number] <= 0 or self.full:
            return None
        self._left[number] -= 1
        line = frame.f_lineno
        self.instants.extend((time.perf_counter_ns(), CALL, id(frame), number, line, self._calls))
        return self._inside

    def _special(self, frame: FrameType, kind: int) -> TraceFunction | None:
        if kind == 1:
            self.updates += 1
            return None
        if self._note_module(frame):
            frame.f_trace_lines = False
            return self._in_module
        return None

    def _note_module(self, frame: FrameType) -> bool:
        module = frame.f_locals.get(frame.f_code.co_varnames[0])
        if module is None or self.full:
            return False
        try:
            name = self._names(module)
        except Exception:  # a model may answer as it likes; see `_kind`
            return False
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self.modules):
            self.modules.append(name)
        self.instants.extend((time.perf_counter_ns(), MODULE, id(frame), number, 0, self._calls))
        return True

    def _inside(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        if self._uninstall is None:  # a frame that outlived the trace, under a debugger's
            return None
        if event == "line":
            number = self._kinds[id(frame.f_code)] - 2
            self._left[number] -= 1
            if self._left[number] <= 0 or self.full:
                frame.f_trace_lines = False
            now = time.perf_counter_ns()
            self.instants.extend((now, LINE, id(frame), number, frame.f_lineno, self._calls))
        elif event == "return":
            self.instants.extend((time.perf_counter_ns(), RETURN, id(frame), 0, 0, self._calls))
        return self._inside

    def _in_module(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        if event == "return":
            self.instants.extend((time.perf_counter_ns(), RETURN, id(frame), 0, 0, self._calls))
        return self._in_module

    def _profiled(self, frame: FrameType, event: str, argument: Any) -> None:
        """A profile function, for modules alone."""
        if event not in ("call", "return"):
            return
        kind = self._kinds.get(id(frame.f_code))
        if kind is None:
            kind = self._kind(frame.f_code)
        if event == "call" and kind == 1:
            self.updates += 1
        elif event == "call" and kind == 0:
            self._note_module(frame)
        elif event == "return" and kind == 0:
            self.instants.extend((time.perf_counter_ns(), RETURN, id(frame), 0, 0, self._calls))


def _is_update(code: CodeType) -> bool:
    """Whether this is the function that PyTorch wraps `Optimizer.step` in."""
    return code.co_name == "wrapper" and code.co_filename.endswith(
        ("torch/optim/optimizer.py", "torch\\optim\\optimizer.py")
    )


def _leave_uncompiled(*functions: Any) -> None:
    """Keep torch.compile from compiling what traces the code that it compiled."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    skip_code = getattr(compiler, "skip_code", None)
    if skip_code is None:
        return
    for function in functions:
        skip_code(function.__code__)
    for function in (LineTrace._kind, LineTrace._judge, LineTrace._special, LineTrace._note_module):
        skip_code(function.__code__)


def _nothing() -> None:
    pass


def _called() -> float:
    """How long a call of a function that does nothing takes, ns: the median of some runs."""
    runs = []
    for _ in range(_RUNS):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            _nothing()
        runs.append((time.perf_counter_ns() - began) / _CALLS)
    return statistics.median(runs)


def _untrace() -> None:
    sys.settrace(None)


def _unprofile() -> None:
    sys.setprofile(None)

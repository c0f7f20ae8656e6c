"""What a thread was in from when to when: lines and modules, from instants that were noted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceprobe.capture.blame.line_trace import CALL, FIELDS, LINE, MODULE, RETURN
from traceprobe.model.codes import Int64s

SHORT_NS = 20_000
"""Shorter stretches in which the profiler saw nothing are joined: they are the loops of Python."""
_FEWEST = 100
"""Instants that tell what each of them took."""
_SIMPLEST = 10.0
"""Per cent of the instants that follow others at once."""
_LEAST_LEFT = 0.05
"""Share of a time that is never taken for the trace's own, so that what follows stays later."""


@dataclass(frozen=True)
class Stretches:
    """Nested stretches of one thread.

    Args:
        t0, t1: ns. name: index into `names`.
    """

    t0: Int64s
    t1: Int64s
    name: Int64s
    names: list[str]

    def __len__(self) -> int:
        return len(self.t0)


@dataclass(frozen=True)
class Untraced:
    """The clock of a trace without what the tracing itself took.

    A loop of Python takes many times as long under a trace, what waits or computes elsewhere does
    not: on this clock their shares of a stretch of time are nearly those without it.

    Args:
        times: ns of instants, ascending. passed: what this clock shows then.
    """

    times: Int64s
    passed: Int64s

    def __call__(self, times: Int64s) -> Int64s:
        """Times of the trace on this clock."""
        if not len(self.times):
            return times
        origin = int(self.times[0])
        inside = np.interp(
            np.clip(times, origin, self.times[-1]) - origin, self.times - origin, self.passed
        )
        outside = np.minimum(times - origin, 0) + np.maximum(times - self.times[-1], 0)
        return np.asarray(np.rint(inside).astype(np.int64) + outside + origin, dtype=np.int64)


def untraced(instants: Int64s, call_ns: float) -> Untraced:
    """The clock for some instants, which are as `LineTrace` has them.

    What an instant took is what little time passes between two of them: those of the simplest lines
    follow each other at once.
    """
    rows = instants.reshape(-1, FIELDS)
    times, calls = rows[:, 0], rows[:, 5]
    if len(times) < _FEWEST:
        return Untraced(times[:0], times[:0])
    each = float(np.percentile(np.diff(times), _SIMPLEST))
    between = np.diff(times).astype(np.float64)
    cost = each + call_ns * np.diff(calls)
    left = np.maximum(between - cost, _LEAST_LEFT * between)
    passed = np.concatenate([[0.0], np.cumsum(left)])
    return Untraced(times, np.rint(passed).astype(np.int64))


@dataclass
class _Frame:
    number: int
    code: int
    """Of a module UNKNOWN."""
    line: int
    since: int
    run: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    run_since: int = 0
    run_until: int = 0


def stretches(
    instants: Int64s,
    codes: Sequence[tuple[str, str]],
    modules: Sequence[str],
    ended: int,
    seen: Int64s,
) -> Stretches:
    """The stretches between instants.

    A line lasts until the next one of its frame, or until the frame is left, callees included.

    Args:
        instants: as `LineTrace` has them, flat.
        codes: file and function of each code. modules: their names.
        ended: ns when the trace ended.
        seen: begins of the events of the profiler, ascending, on the same clock.
    """
    rows = instants.reshape(-1, FIELDS)
    # For each instant, how many events of the profiler began before it.
    before = [*np.searchsorted(seen, rows[:, 0]).tolist(), len(seen)]
    builder = _Builder(codes, modules)
    for (time, kind, frame, number, line, _), events in zip(
        rows.tolist(), before[: len(rows)], strict=True
    ):
        builder.add(time, kind, frame, number, line, events)
    builder.close(ended, before[-1])
    return builder.result()


class _Builder:
    def __init__(self, codes: Sequence[tuple[str, str]], modules: Sequence[str]) -> None:
        self._codes, self._modules = codes, modules
        self._stack: list[_Frame] = []
        self._events: list[int] = []
        """Of the profiler, when each frame's line began."""
        self._open: set[int] = set()
        self._numbers: dict[tuple[int, int], int] = {}
        self._rows: list[tuple[int, int, int]] = []

    def add(self, time: int, kind: int, frame: int, number: int, line: int, events: int) -> None:
        if kind in (CALL, MODULE):
            if frame in self._open:  # it was left unseen, and another has its place
                self._leave(frame, time, events)
            self._push(frame, number if kind == CALL else -1 - number, line, time, events)
        elif kind == LINE:
            if frame not in self._open:
                self._push(frame, number, line, time, events)
                return
            self._unwind(frame, time, events)
            self._end_line(time, events)
            top = self._stack[-1]
            top.line, top.since, self._events[-1] = line, time, events
        elif kind == RETURN and frame in self._open:
            self._leave(frame, time, events)

    def close(self, time: int, events: int) -> None:
        while self._stack:
            self._pop(time, events)

    def result(self) -> Stretches:
        names = [self._named(*key) for key in self._numbers]
        t0, t1, name = np.array(self._rows, dtype=np.int64).reshape(-1, 3).T
        # What encloses another was left later, so of equal ones it goes first.
        order = np.lexsort((-np.arange(len(t0)), -t1, t0))
        return Stretches(t0[order], t1[order], name[order], names)

    def _named(self, code: int, line: int) -> str:
        if code < 0:
            return self._modules[-1 - code]
        file, function = self._codes[code]
        return f"{file}({line}): {function}"

    def _push(self, frame: int, code: int, line: int, time: int, events: int) -> None:
        self._stack.append(_Frame(frame, code, line, time))
        self._events.append(events)
        self._open.add(frame)

    def _unwind(self, frame: int, time: int, events: int) -> None:
        while self._stack[-1].number != frame:
            self._pop(time, events)

    def _leave(self, frame: int, time: int, events: int) -> None:
        self._unwind(frame, time, events)
        self._pop(time, events)

    def _pop(self, time: int, events: int) -> None:
        self._end_line(time, events)
        top = self._stack.pop()
        self._events.pop()
        self._open.discard(top.number)
        self._end_run(top)

    def _end_line(self, time: int, events: int) -> None:
        top = self._stack[-1]
        length = time - top.since
        if top.code < 0:
            self._emit(top.since, time, top.code, 0)
        elif length < SHORT_NS and events == self._events[-1]:
            if not top.run:
                top.run_since = top.since
            top.run[top.line] += length
            top.run_until = time
        else:
            self._end_run(top)
            self._emit(top.since, time, top.code, top.line)

    def _end_run(self, frame: _Frame) -> None:
        """Joined short stretches are the line's that has most of them."""
        run = frame.run
        if run and frame.run_until - frame.run_since >= SHORT_NS:
            line = max(run, key=run.__getitem__)
            self._emit(frame.run_since, frame.run_until, frame.code, line)
        run.clear()

    def _emit(self, t0: int, t1: int, code: int, line: int) -> None:
        if t1 > t0:
            name = self._numbers.setdefault((code, line), len(self._numbers))
            self._rows.append((t0, t1, name))

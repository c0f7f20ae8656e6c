"""Steps as rows, ever fewer of them: a run of any length fits on a disk."""

from __future__ import annotations

from collections.abc import Callable

from traceprobe.capture.watch.rows import Kind, Row, RowLog

SINGLE = 1 << 20
"""Steps that have a row of their own. After them rows hold two steps, and twice as many after each
`SINGLE // 2` rows: 40 MiB for a million steps, 20 MiB more for each doubling."""
LONG = 1.5
"""A step that takes so many times the mean has a row of its own in any case, up to a limit."""
LONG_ROWS = 1 << 18
"""How many of them may."""


class StepRows:
    """Adds steps to a log as they end."""

    def __init__(self, log: RowLog, single: int = SINGLE) -> None:
        self._log, self._size = log, single
        self._rows, self._limit = 0, single
        self._long = LONG_ROWS
        self._group = 1
        self._mean = 0.0
        self._open: list[tuple[int, int, int, int]] = []

    def add(self, number: int, end_ns: int, ns: int, wait_ns: int) -> None:
        """A step has ended."""
        if self._group == 1:
            self._log.add(Row(Kind.STEP, number, 1, end_ns, ns, wait_ns, ns))
            self._mean = ns if not self._rows else self._mean + (ns - self._mean) / 64
            self._count()
            return
        self._mean += (ns - self._mean) / 1024
        if ns > LONG * self._mean and self._long:
            self._long -= 1
            self.close()
            self._log.add(Row(Kind.STEP, number, 1, end_ns, ns, wait_ns, ns))
            return
        self._open.append((number, end_ns, ns, wait_ns))
        if len(self._open) >= self._group:
            self.close()
            self._count()

    def close(self) -> None:
        """Steps that wait for others to share a row with wait no longer."""
        steps, self._open = self._open, []
        if not steps:
            return
        numbers, ends, ns, waits = zip(*steps, strict=True)
        self._log.add(
            Row(Kind.STEP, numbers[0], len(steps), ends[-1], sum(ns), sum(waits), max(ns))
        )

    def _count(self) -> None:
        self._rows += 1
        if self._rows >= self._limit:
            self._limit += self._size // 2
            self._group = min(self._group * 2, 1 << 15)


class SeenSteps(StepRows):
    """Steps that are also shown to somebody as they end.

    Args:
        see: takes the number of a step and its time, ns.
    """

    def __init__(self, log: RowLog, see: Callable[[int, int], None]) -> None:
        super().__init__(log)
        self._see = see

    def add(self, number: int, end_ns: int, ns: int, wait_ns: int) -> None:
        """A step has ended."""
        self._see(number, ns)
        super().add(number, end_ns, ns, wait_ns)

"""Numbers of processes in the file that is written: each belongs to one input."""

from __future__ import annotations

Pid = int | str
"""Dialects name some processes by texts, such as "Spans"."""
_FIRST_FREE = 1_000_000_000
"""No operating system gives as large a number to a process."""


class Pids:
    """The numbers that are taken."""

    def __init__(self) -> None:
        self._taken: set[Pid] = set()
        self._next = _FIRST_FREE

    def claim(self, wanted: Pid) -> Pid:
        """This number, or another where it is taken."""
        if wanted in self._taken:
            return self.free()
        self._taken.add(wanted)
        return wanted

    def free(self) -> int:
        """A number that nothing has."""
        while self._next in self._taken:
            self._next += 1
        self._taken.add(self._next)
        return self._next

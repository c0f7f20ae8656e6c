"""When a short capture is due: after a long step, at the next turn of a rhythm, at intervals."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

WINDOW, REFRESH = 64, 16
"""Last steps that say what is usual, and steps after which that is reckoned anew."""
LONG, SCATTERS, LONG_NS = 2.0, 8.0, 20_000_000
"""A step is long that takes so many times the median, so many scatters and so many ns more."""
REMEMBERED = 16
ALIKE = 2.0
"""Long steps among which three at equal distances are a rhythm, if each is at most so many times
another. Others may be between them."""
APART = 50
"""Steps between two captures, at least."""


class Reason(NamedTuple):
    """Why a capture is made.

    Args:
        kind: `interval`, `spike` or `rhythm`.
        step: the long step that caused it, or is expected. period: of the rhythm, steps.
        ms: length of the last long step; 0 where none caused it.
        usual_ms: median of the last steps.
    """

    kind: str
    step: int
    period: int
    ms: float
    usual_ms: float


class CaptureTrigger:
    """Looks at steps as they end.

    Args:
        captures: at most. Of several the last is not spent on single long steps, for they are over
            when they are seen; a rhythm can be captured.
        every: steps between captures at intervals; 0 for none.
        lead: steps that a capture begins before the step that it is made for.
    """

    def __init__(self, captures: int, every: int, lead: int) -> None:
        self._left, self._every, self._lead = captures, every, lead
        self._kept = min(captures - 1, 1)
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._long: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._explained: dict[int, int] = {}
        self._usual_ns = self._limit_ns = 0.0
        self._seen = 0
        self._last_ns = 0
        self._spike: int | None = None
        self._period = self._turn = 0
        self._captured: set[int] = set()
        self._earliest = 0

    def explain(self, number: int, ns: int) -> None:
        """So much of a step is due to what was timed, and needs no profiler."""
        self._explained[number] = self._explained.get(number, 0) + ns

    def see(self, number: int, ns: int) -> None:
        """A step has ended."""
        ns -= self._explained.pop(number, 0) if self._explained else 0
        self._recent.append(ns)
        self._seen += 1
        if self._limit_ns and ns > self._limit_ns:
            self._long_step(number, ns)
        if self._seen % REFRESH == 0 and len(self._recent) == WINDOW:
            self._usual_ns = median(self._recent)
            scatter = 1.4826 * median(abs(each - self._usual_ns) for each in self._recent)
            self._limit_ns = max(
                *(LONG * self._usual_ns, self._usual_ns + SCATTERS * scatter),
                self._usual_ns + LONG_NS,
            )

    def due(self, number: int) -> Reason | None:
        """Why a capture is to begin with step `number`; None where none is."""
        spike, self._spike = self._spike, None
        if not self._left or number < self._earliest:
            return None
        if self._period and self._period not in self._captured:
            return self._at_next_turn(number)
        if spike is not None and self._left > self._kept:
            return self._begin(number, "spike", spike, 0)
        if self._every and number >= self._every and number % self._every == 0:
            return self._begin(number, "interval", number, 0)
        return None

    def _at_next_turn(self, number: int) -> Reason | None:
        ahead = (self._turn - number) % self._period
        if ahead > self._lead:
            return None
        self._captured.add(self._period)
        return self._begin(number, "rhythm", number + ahead, self._period)

    def _begin(self, number: int, kind: str, step: int, period: int) -> Reason:
        self._left -= 1
        self._earliest = number + APART
        ms = 0.0 if kind == "interval" else self._last_ns / 1e6
        return Reason(kind, step, period, round(ms, 3), round(self._usual_ns / 1e6, 3))

    def _long_step(self, number: int, ns: int) -> None:
        self._last_ns, self._spike = ns, number
        alike = {before for before, took in self._long if max(took, ns) <= ALIKE * min(took, ns)}
        for before in sorted(alike, reverse=True):
            gap = number - before
            if gap > 1 and before - gap in alike:
                self._period, self._turn = gap, number
                break
        self._long.append((number, ns))

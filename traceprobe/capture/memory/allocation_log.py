"""Log of the allocations of a step: what was on the device at its peak, and what it was for.

The same log is kept of a step that is simulated (storages of fake tensors) and of one that is
measured (blocks of the allocator), so that the two can be compared part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

MIN_BLOCK_BYTES = 512
"""Bytes: the caching allocator rounds every request up to a multiple of this."""
TIMELINE_POINTS = 120
"""Points of a timeline."""
PARTS = (
    "weights",
    "optimizer_state",
    "gradients",
    "input",
    "activations",
    "temporary",
    "held",
)
"""What memory is for, in the order in which it piles up:

weights: parameters and buffers. optimizer_state: what the optimizer keeps between steps.
gradients: of parameters. input: batches on the device. activations: made by a forward pass and
still there when it ends. temporary: all else that a step makes. held: there before the step
began, and none of the above (results of the step before, workspaces of libraries).
"""
INPUT_PHASES = ("h2d", "data_loading")


@dataclass(slots=True)
class Allocation:
    """One allocation. `allocated_at` and `freed_at` number the events of the step; -1 is before it.

    Args:
        part: what it is for, where that is known from its maker; "" where its life tells.
        span: index of the phase that it was born in; -1 for none.
        operator: the operator that made it, if known.
    """

    bytes: int
    allocated_at: int
    part: str = ""
    span: int = -1
    operator: str = ""
    freed_at: int | None = None


@dataclass(slots=True)
class PhaseSpan:
    """A phase: its name, and the events `first` <= event < `end`."""

    name: str
    first: int
    end: int | None = None


def round_to_blocks(nbytes: int) -> int:
    """What the allocator takes for a request of so many bytes."""
    return -(-nbytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


@dataclass
class AllocationLog:
    """Allocations of a step and what became of them, in the order in which it happens.

    A key names a block in use; it may come back for another one once that is freed.
    """

    blocks: list[Allocation] = field(default_factory=list)
    spans: list[PhaseSpan] = field(default_factory=list)
    events: int = 0
    times: list[float] = field(default_factory=list)
    """When each event was, in a unit of the owner's; empty where only the order is known."""
    _in_use: dict[Hashable, Allocation] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)

    def add_existing(self, key: Hashable, nbytes: int, part: str) -> None:
        """A block from before the step."""
        if key not in self._in_use:
            self._keep(key, Allocation(round_to_blocks(nbytes), -1, part))

    def allocate(self, key: Hashable, nbytes: int, operator: str = "", part: str = "") -> None:
        """A block is allocated."""
        span = self._open[-1] if self._open else -1
        self._keep(key, Allocation(round_to_blocks(nbytes), self.events, part, span, operator))
        self.events += 1

    def free(self, key: Hashable) -> None:
        """A block is freed; keys that nobody knows are let pass."""
        block = self._in_use.pop(key, None)
        if block is not None:
            block.freed_at = self.events
            self.events += 1

    def set_part(self, key: Hashable, part: str) -> None:
        """Say what a block in use is for, where its phase and lifetime do not tell."""
        block = self._in_use.get(key)
        if block is not None and not block.part:
            block.part = part

    def set_parts(self, keys: Iterable[Hashable], part: str) -> None:
        """The same of several blocks."""
        for key in keys:
            self.set_part(key, part)

    def start_step(self) -> None:
        """Forget the events so far; what lives is there from before."""
        for block in self._in_use.values():
            block.allocated_at, block.span, block.part = -1, -1, block.part or "held"
        self.blocks = list(self._in_use.values())
        self.spans, self.events, self.times = [], 0, []

    def enter_phase(self, name: str) -> None:
        """A phase begins; phases may be nested."""
        self._open.append(len(self.spans))
        self.spans.append(PhaseSpan(name, self.events))

    def leave_phase(self) -> None:
        """The phase ends that began last."""
        self.spans[self._open.pop()].end = self.events

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Events inside belong to a phase."""
        self.enter_phase(name)
        try:
            yield
        finally:
            self.leave_phase()

    def _keep(self, key: Hashable, block: Allocation) -> None:
        self._in_use[key] = block
        self.blocks.append(block)


def summarize_allocations(log: AllocationLog) -> dict[str, Any]:
    """The memory of a step, as a plain record.

    Returns:
        peak_bytes, peak_phase and peak_operator (None where unknown); parts: bytes at that moment
        by part, which add up to the peak; most: the largest that each part gets; phases: the
        largest total within each; timeline: at most `TIMELINE_POINTS` moments, each the
        largest total of a stretch of the step, with `position` (events, or the log's times) and the
        bytes of each part.
    """
    changes = {part: [0] * (log.events + 1) for part in PARTS}
    for block in log.blocks:
        series = changes[_part(block, log.spans)]
        series[block.allocated_at + 1] += block.bytes
        if block.freed_at is not None:
            series[block.freed_at + 1] -= block.bytes
    totals = {part: list(accumulate(series)) for part, series in changes.items()}
    total = [sum(parts) for parts in zip(*totals.values(), strict=True)]
    peak = _highest(total, 0, len(total))
    event = peak - 1
    operator = next((b.operator for b in log.blocks if b.allocated_at == event), "")
    return {
        "peak_bytes": total[peak],
        "peak_phase": next((s.name for s in log.spans if _within(s, event)), None),
        "peak_operator": operator or None,
        "parts": {part: series[peak] for part, series in totals.items()},
        "most": {part: max(series) for part, series in totals.items()},
        "phases": _phases(log, total),
        "timeline": _timeline(log, totals, total),
    }


def _part(block: Allocation, spans: list[PhaseSpan]) -> str:
    if block.part:
        return block.part
    if block.span < 0:
        return "temporary"
    span = spans[block.span]
    if span.name in INPUT_PHASES:
        return "input"
    outlives = block.freed_at is None or span.end is None or block.freed_at >= span.end
    return "activations" if span.name == "forward" and outlives else "temporary"


def _within(span: PhaseSpan, event: int) -> bool:
    return span.first <= event and (span.end is None or event < span.end)


def _highest(series: list[int], begin: int, end: int) -> int:
    """Where the largest value is, of a stretch; the first of equals."""
    return max(range(begin, end), key=series.__getitem__)


def _phases(log: AllocationLog, total: list[int]) -> dict[str, int]:
    """The largest total within each phase, over all its turns."""
    found: dict[str, int] = {}
    for span in log.spans:
        inside = total[span.first : (len(total) if span.end is None else span.end) + 1]
        found[span.name] = max([found.get(span.name, 0), *inside])
    return found


def _timeline(log: AllocationLog, totals: dict[str, list[int]], total: list[int]) -> dict[str, Any]:
    count = min(TIMELINE_POINTS, len(total))
    edges = [len(total) * number // count for number in range(count + 1)]
    chosen = [_highest(total, begin, end) for begin, end in pairwise(edges)]
    place: Callable[[int], float] = (
        (lambda i: round(log.times[max(i - 1, 0)], 1)) if log.times else float
    )
    return {
        "position": [place(i) for i in chosen],
        "phase": [next((s.name for s in log.spans if _within(s, i - 1)), "") for i in chosen],
        "parts": {part: [series[i] for i in chosen] for part, series in totals.items()},
    }

"""Changes of what is played: parts left out, sped up, or hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from traceprobe.model.taxonomy import COMPUTE_PHASES, OFF_DEVICE
from traceprobe.whatif.simulate import ImpossibleChange, Part, Row

GROUPS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*COMPUTE_PHASES, *OFF_DEVICE)},
    "compute": COMPUTE_PHASES,
}
"""What of the GPU's work can be named, and which kinds of rows that is."""
REMOVABLE = (*GROUPS, "data-wait", "host", "sync", "skew")
SPEEDABLE = (*GROUPS, "host", "loader")
OVERLAPPABLE = OFF_DEVICE


@dataclass(frozen=True)
class Changes:
    """What is to be different.

    Args:
        removed: of `REMOVABLE`. overlapped: of `OVERLAPPABLE`.
        speedup: factor by which each of `SPEEDABLE` gets faster; below 1 it gets slower.
        bucket_mb: size from which on a bucket of gradients is sent, in MB of 2**20 bytes.
        accumulate: micro-batches, each of the size of a batch, that share one synchronisation and
            one update.
    """

    removed: frozenset[str] = frozenset()
    overlapped: frozenset[str] = frozenset()
    speedup: Mapping[str, float] = field(default_factory=dict)
    bucket_mb: float | None = None
    accumulate: int = 1

    def words(self) -> list[str]:
        """The changes as a person says them, in a stable order."""
        return [
            *(f"{name} removed" for name in REMOVABLE if name in self.removed),
            *(f"{name} overlapped" for name in OVERLAPPABLE if name in self.overlapped),
            *(
                f"{name} {self.speedup[name]:g} times as fast"
                for name in SPEEDABLE
                if name in self.speedup
            ),
            *([f"buckets of {self.bucket_mb:g} MB"] if self.bucket_mb is not None else []),
            *([f"{self.accumulate} batches per update"] if self.accumulate > 1 else []),
        ]


def apply(part: Part, changes: Changes) -> Part:
    """The part of a rank with all changes but that of the buckets."""
    rows = list(part.rows)
    for name in REMOVABLE:
        if name in changes.removed:
            rows = _removed(rows, name)
    for name, factor in changes.speedup.items():
        rows = _faster(rows, name, factor)
    for name in OVERLAPPABLE:
        if name in changes.overlapped:
            rows = _overlapped(rows, name)
    if changes.accumulate > 1:
        rows = _accumulated(rows, changes.accumulate)
    period = part.period
    if period is not None:
        period *= changes.accumulate / changes.speedup.get("loader", 1.0)
        if "data-wait" in changes.removed:
            period = None
    return replace(part, rows=rows, period=period)


def scaled(rows: Iterable[Row], kinds: Sequence[str], factor: float) -> list[Row]:
    """Rows of these kinds with durations times `factor`."""
    return [
        replace(
            row,
            busy=row.busy * factor,
            tail=max(row.tail + (factor - 1) * min(row.busy, row.tail), 0.0),
        )
        if row.kind in kinds
        else row
        for row in rows
    ]


def hosted(rows: Iterable[Row], factor: float) -> list[Row]:
    """Rows with the host's own time times `factor`."""
    return [replace(row, first=row.first * factor, host=row.host * factor) for row in rows]


def _removed(rows: list[Row], name: str) -> list[Row]:
    if name == "data-wait":
        return [replace(row, data=0.0) for row in rows]
    if name == "host":
        return hosted(rows, 0.0)
    if name == "sync":
        return [replace(row, awaits=0) for row in rows]
    if name == "skew":
        return [replace(row, joins=False) for row in rows]
    kinds = GROUPS[name]
    return [replace(row.emptied(), needs=()) if row.kind in kinds else row for row in rows]


def _faster(rows: list[Row], name: str, factor: float) -> list[Row]:
    if name == "loader":
        return [replace(row, data=row.data / factor) for row in rows]
    if name == "host":
        return hosted(rows, 1 / factor)
    return scaled(rows, GROUPS[name], 1 / factor)


def _overlapped(rows: list[Row], name: str) -> list[Row]:
    """Rows of a kind on a stream of their own, whose results are needed one iteration later.

    So they are hidden behind everything else, and a step still lasts as long as all of them.
    """
    kinds = GROUPS[name]
    mine = [row.kind in kinds for row in rows]
    if not any(mine):
        return rows
    earlier = _one_iteration_earlier(rows, mine)
    own = 1 + max(row.stream for row in rows)
    found: list[Row] = []
    last: dict[int, int] = {}
    """By stream, the moved row that the next one on it came after."""
    for number, row in enumerate(rows):
        awaits = 0 if row.awaits and mine[(number - row.awaits) % len(rows)] else row.awaits
        if mine[number]:
            last[row.stream] = number
            same = [d for d in row.needs if not mine[(number - d) % len(rows)]]
            found.append(replace(row, stream=own, awaits=awaits, needs=tuple(same)))
            continue
        targets = [(number - d) % len(rows) for d in row.needs]
        needs = [d for d, of in zip(row.needs, targets, strict=True) if not mine[of]]
        needed = [of for of in targets if mine[of]]
        if row.stream in last:
            needed.append(last.pop(row.stream))
        needs += [number - earlier[of] for of in needed]
        found.append(replace(row, awaits=awaits, needs=tuple(needs)))
    return found


def _one_iteration_earlier(rows: Sequence[Row], mine: Sequence[bool]) -> dict[int, int]:
    """For each marked row, that with the same place from the end in the iteration before.

    Numbers below 0 are rows of the cycle before.
    """
    by_iteration: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if mine[number]:
            by_iteration.setdefault(row.iteration, []).append(number)
    order = sorted(by_iteration)
    found = {}
    for place, iteration in enumerate(order):
        before, now = by_iteration[order[place - 1]], by_iteration[iteration]
        cycle = 0 if place else len(rows)
        for back, number in enumerate(reversed(now), 1):
            found[number] = before[-min(back, len(before))] - cycle
    return found


def _accumulated(rows: list[Row], count: int) -> list[Row]:
    """Each iteration `count` times; all but the last without collectives and update."""
    found: list[Row] = []
    iterations: dict[int, list[Row]] = {}
    for row in rows:
        iterations.setdefault(row.iteration, []).append(row)
    for mine in iterations.values():
        quiet = _removed(_removed(mine, "communication"), "optimizer")
        for _ in range(count - 1):
            found += quiet
        found += mine
    return found


def check(part: Part, changes: Changes) -> None:
    """Refuse changes of what a run has not.

    Raises:
        ImpossibleChange: nothing of that kind was played.
    """
    kinds = {row.kind for row in part.rows if row.busy}
    has: Mapping[str, Callable[[], bool]] = {
        "data-wait": lambda: part.period is not None or any(row.data for row in part.rows),
        "loader": lambda: part.period is not None or any(row.data for row in part.rows),
        "sync": lambda: any(row.awaits for row in part.rows),
        "skew": lambda: any(row.joins for row in part.rows),
        "host": lambda: True,
    }
    for name in [*changes.removed, *changes.overlapped, *changes.speedup]:
        found = has[name]() if name in has else bool(kinds & set(GROUPS[name]))
        if not found:
            known = ", ".join(sorted(kinds))
            raise ImpossibleChange(f"{name}: the run has none; it has {known}")

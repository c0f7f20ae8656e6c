"""Operators of the framework in two reports: how often they are called, and what time they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from traceprobe.records.comparison import OperatorChange, OperatorState
from traceprobe.records.operator_calls import MOST_OPERATORS, OperatorCalls
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report


class Use(msgspec.Struct, frozen=True):
    """An operator in a step: calls per step; ms on device and host, per step or per sample."""

    count: float = 0.0
    ms: float = 0.0
    host_ms: float = 0.0


def operator_changes(
    base: Report, new: Report, scale: tuple[float, float] = (1.0, 1.0)
) -> list[OperatorChange] | UnsetType:
    """All operators that either run calls, those first whose time on the device changed most.

    Of the first rank with operators of each run. A report that lists as many as it may leaves some
    out; what is in the other list only is then left out here, too.

    Args:
        scale: of the times of both runs, which makes those of a step ones of a sample.

    Returns:
        UNSET where one of the reports has no operators.
    """
    first, second = _first(base), _first(new)
    if first is None or second is None:
        return UNSET
    before, after = _uses(first, scale[0]), _uses(second, scale[1])
    names = before.keys() | after.keys()
    if len(_listed(first)) >= MOST_OPERATORS:
        names &= before.keys()
    if len(_listed(second)) >= MOST_OPERATORS:
        names &= after.keys()
    changes = [_change(name, before.get(name, Use()), after.get(name, Use())) for name in names]
    return sorted(changes, key=_by_size)


def _by_size(change: OperatorChange) -> tuple[float, float, float, str]:
    return (
        -abs(change.delta_ms),
        -abs(change.new_host_ms - change.base_host_ms),
        -abs(change.new_count - change.base_count),
        change.name,
    )


def _first(report: Report) -> Rank | None:
    return next((r for r in report.ranks if _listed(r) and r.summary.iterations_used), None)


def _listed(rank: Rank) -> Sequence[OperatorCalls]:
    return rank.summary.operators or ()


def _uses(rank: Rank, scale: float) -> dict[str, Use]:
    """Operators by name; names that are alike once they are cut count together."""
    steps = rank.summary.iterations_used
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for each in _listed(rank):
        entry = sums[each.name]
        entry[0] += each.count / steps
        entry[1] += each.device_ns / 1e6 / steps * scale
        entry[2] += each.host_ns / 1e6 / steps * scale
    return {name: Use(*values) for name, values in sums.items()}


def _change(name: str, old: Use, now: Use) -> OperatorChange:
    before, after = round(old.count, 3), round(now.count, 3)
    return OperatorChange(
        name=name,
        state=_state(before, after),
        base_count=before,
        new_count=after,
        base_ms=round(old.ms, 6),
        new_ms=round(now.ms, 6),
        base_host_ms=round(old.host_ms, 6),
        new_host_ms=round(now.host_ms, 6),
    )


def _state(before: float, after: float) -> OperatorState:
    if before == after:
        return "same"
    if not before:
        return "appeared"
    if not after:
        return "vanished"
    return "more" if after > before else "fewer"

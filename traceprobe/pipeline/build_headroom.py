"""The bounds of the shortest step, from what the run says of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from traceprobe.records.headroom import Headroom
from traceprobe.records.memory import Memory
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.roofline import Roofline
from traceprobe.timeline.operator_time import OperatorTime
from traceprobe.verdict.headroom import floors_of, headroom


def build_headroom(
    report: Report,
    ranks: Sequence[Rank],
    called: Sequence[OperatorTime | None],
    reachable_ms: float | None,
) -> Headroom | UnsetType:
    """The headroom of a run; UNSET where no floor is known.

    Args:
        ranks: of the report, with all their details.
        called: of each device, operators with the sizes of their operands.
        reachable_ms: a step with all that the findings ask for; None where it cannot be played.
    """
    now = report.step_ms
    if now is None:
        return UNSET
    floors = floors_of(
        ranks,
        report.roofline if isinstance(report.roofline, Roofline) else None,
        report.workload,
        _least(called),
        report.memory if isinstance(report.memory, Memory) else None,
    )
    found = headroom(now, now if reachable_ms is None else reachable_ms, floors)
    return UNSET if found is None else found


def _least(called: Sequence[OperatorTime | None]) -> Mapping[str, float]:
    """Operations of a step of one device that every way to compute the same takes."""
    known = [each for each in called if each is not None and each.steps]
    total = Counter[str]()
    for each in known:
        total.update(each.least)
    steps = sum(each.steps for each in known)
    return {name: count / steps for name, count in sorted(total.items())}

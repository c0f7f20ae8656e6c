"""The floors of a step, from what the run says of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from traceprobe.records.headroom import Floor
from traceprobe.records.memory import Memory
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.roofline import Roofline
from traceprobe.timeline.operator_time import OperatorTime
from traceprobe.verdict.headroom import floors_of


def floors(
    report: Report, ranks: Sequence[Rank], called: Sequence[OperatorTime | None]
) -> list[Floor]:
    """What no step of a run is shorter than; none where that is not known.

    Args:
        ranks: of the report, with all their details.
        called: of each device, operators with the sizes of their operands.
    """
    return floors_of(
        ranks,
        report.roofline if isinstance(report.roofline, Roofline) else None,
        report.workload,
        _least(called),
        report.memory if isinstance(report.memory, Memory) else None,
    )


def _least(called: Sequence[OperatorTime | None]) -> dict[str, float]:
    """Operations of a step of one device that every way to compute the same takes."""
    known = [each for each in called if each is not None and each.steps]
    total = Counter[str]()
    for each in known:
        total.update(each.least)
    steps = sum(each.steps for each in known)
    return {name: count / steps for name, count in sorted(total.items())}

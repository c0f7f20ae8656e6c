"""What comes first where not everything can: findings by urgency, ranks by interest."""

from __future__ import annotations

from traceprobe.report.palette import STATUS_WORDS
from traceprobe.report.result import Finding, Rank, Report

MAX_DETAILED_RANKS = 8


def ranked_findings(findings: list[Finding]) -> list[Finding]:
    """Failures first; within a state the largest possible saving, then the report's order."""
    order = list(STATUS_WORDS)
    return sorted(findings, key=lambda f: (order.index(f.status), -(f.saving_ms_per_step or 0.0)))


def ranks_in_detail(report: Report) -> list[Rank]:
    """The ranks that get pictures: all of a small run, else the straggler and the lowest ones.

    Ranks of which the report has no details come last.
    """
    straggler = report.run.straggler_rank if report.run is not None else None
    by_interest = sorted(
        report.ranks, key=lambda r: (r.rank != straggler, not r.gaps and r.timeline is None, r.rank)
    )
    return sorted(by_interest[:MAX_DETAILED_RANKS], key=lambda r: (r.rank, r.pid))

"""What comes first where not everything can: findings by urgency, ranks by interest."""

from __future__ import annotations

from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.picture import Picture
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding, Report

MAX_DETAILED_RANKS = 8
ATTENTION = ("fail", "warn")
"""States of findings that ask for attention."""


def ranked_findings(findings: list[Finding]) -> list[Finding]:
    """What asks for attention by its largest possible saving, then the others by their state."""
    order = list(STATUS_LABELS)

    def urgency(finding: Finding) -> tuple[int, float, int]:
        state = order.index(finding.status)
        group = 0 if finding.status in ATTENTION else state
        return group, -(finding.saving_ms_per_step or 0.0), state

    return sorted(findings, key=urgency)


def ranks_in_detail(report: Report) -> list[Rank]:
    """The ranks that get pictures: all of a small run, else the straggler and the lowest ones.

    Ranks of which the report has no details come last.
    """
    straggler = report.run.straggler_rank if report.run is not None else None
    by_interest = sorted(
        report.ranks,
        key=lambda r: (
            r.rank != straggler,
            not r.gaps and not isinstance(r.picture, Picture),
            r.rank,
        ),
    )
    return sorted(by_interest[:MAX_DETAILED_RANKS], key=lambda r: (r.rank, r.pid))

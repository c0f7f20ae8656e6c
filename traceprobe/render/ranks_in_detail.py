"""Which ranks are shown in detail where there are many."""

from __future__ import annotations

from traceprobe.records.picture import Picture
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report

MAX_DETAILED_RANKS = 8


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

"""Who owns the time of the ranks that are looked at in detail: a table and a picture to explore."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.tree import Tree
from traceprobe.render.document import Owners
from traceprobe.render.pages.report_timeline import labels

CAPTION = "Who owns the time"


def owners_block(report: Report, ranks: Sequence[Rank]) -> Owners | None:
    """The trees of these ranks of the report; None where none has one, as in older reports."""
    found = [report.ranks.index(r) for r in ranks if isinstance(r.tree, Tree) and r.tree.nodes.rows]
    return Owners(CAPTION, found, labels()) if found else None

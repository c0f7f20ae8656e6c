"""The operators of a rank that launched the most GPU time."""

from __future__ import annotations

import msgspec

from traceprobe.formatting import ms, percent, shorten, significant
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.rank import Rank
from traceprobe.render.document import Table

MAX_NAME = 110
OUTSIDE = "(outside of any operator)"


def operators_table(rank: Rank) -> Table | None:
    """Operators by GPU time; None where the trace has none."""
    operators = rank.summary.top_operators
    if isinstance(operators, msgspec.UnsetType) or not operators:
        return None
    steps = rank.summary.steps
    busy = sum(ns or 0 for ns in rank.summary.busy_ns.values())
    rows = [
        [
            OUTSIDE if operator.name is None else shorten(operator.name, MAX_NAME),
            BUSY_LABELS.get(operator.phase, operator.phase),
            significant(operator.kernels / steps),
            ms(operator.total_ns / steps),
            percent(operator.total_ns / busy) if busy else "",
        ]
        for operator in operators
    ]
    unit = "per step" if rank.summary.iterations_used else "in the capture"
    caption = f"{len(rows)} operators that launched the most GPU time; operations and ms {unit}"
    head = ["operator", "phase", "GPU operations", "ms", "of GPU time"]
    return Table(caption, head, rows, frozenset({2, 3, 4}), names=frozenset({0}))

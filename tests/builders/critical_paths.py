"""Made-up critical paths of known parts, for what shows them."""

from __future__ import annotations

from traceprobe.records.critical_path import (
    Blocking,
    CriticalPath,
    Edges,
    PathOperator,
    PathPart,
    Slack,
    Stretch,
)

MS = 1_000_000


def path_of(stretches, **changes):
    """A path of stretches (rank, part, start, end), ns; its parts are their sums."""
    spent: dict[tuple[str, int], int] = {}
    for rank, part, start, end in stretches:
        spent[part, rank] = spent.get((part, rank), 0) + end - start
    parts = [
        PathPart(part=part, rank=rank, ms=ns / MS)
        for (part, rank), ns in sorted(spent.items(), key=lambda item: -item[1])
    ]
    fields = {
        "step_ms": sum(spent.values()) / MS,
        "parts": parts,
        "operators": [
            PathOperator(operator=f"aten::{p.part}", part=p.part, rank=p.rank, ms=p.ms / 2)
            for p in parts[:12]
        ],
        "slack": [Slack(part="h2d", rank=0, busy_ms=4.2, slack_ms=1.5)],
        "stretches": [
            Stretch(rank=rank, part=part, start_ns=start, end_ns=end)
            for rank, part, start, end in stretches
        ],
        "blocking": [],
        "blocking_ms": None,
        "edges": Edges(recorded=1_203, inferred=14, unresolved=2),
        "host_factor": 1.0,
        **changes,
    }
    path = CriticalPath(**fields)
    assert [*path.problems()] == []
    return path


def across_ranks(start=0):
    """A path over two ranks that share 40 ms: rank 1 computes late, then both communicate."""
    stretches = [
        (1, "host", 0, 3),
        (1, "launch", 3, 4),
        (1, "backward", 4, 22),
        (0, "communication", 22, 34),
        (0, "optimizer", 34, 39),
        (0, "delay", 39, 40),
    ]
    return path_of(
        [(rank, part, start + a * MS, start + b * MS) for rank, part, a, b in stretches],
        blocking=[
            Blocking(group=0, bytes=26_214_400, count_per_step=8.0, busy_ms=23.4, blocking_ms=8.1),
            Blocking(group=-1, bytes=-1, count_per_step=0.5, busy_ms=0.2, blocking_ms=0.0),
        ],
        blocking_ms=8.1,
        host_factor=0.62,
    )

"""What the ranks of a run say together, to the record of the report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from traceprobe.records.rank import Rank
from traceprobe.records.run import Run
from traceprobe.timeline.collective_waits import CollectiveWaits
from traceprobe.verdict.thresholds import FIXED


def run_record(
    ranks: Sequence[Rank],
    matched: CollectiveWaits | None,
    world_size: int | None,
    *,
    doubtful: bool = False,
) -> Run | None:
    """What the ranks say together; None for one rank of a run that is not distributed.

    Args:
        doubtful: ranks are missing or may be of another run, so that none of those that are there
            can be called the one that all wait for.
    """
    if len(ranks) < 2 and (world_size or 1) < 2:
        return None
    size = max(world_size or 0, len(ranks))
    if matched is None:
        return Run(
            world_size=size,
            collectives_matched=0,
            transfer_ns=None,
            skew_ns=None,
            straggler_rank=None,
            straggler_cause=None,
        )
    steps = matched.steps
    skew = round(sum(matched.wait_ns) / len(ranks) / steps)
    slowest, cause = matched.mostly_last
    if doubtful:
        slowest = None
    # In a run all steps take about the same time, whoever is waited for.
    summary = ranks[slowest or 0].summary
    waits = skew > FIXED.straggling * summary.window_ns / summary.steps
    if not waits:
        slowest = None
    together = [] if slowest is not None or doubtful or not waits else matched.mostly_last_together
    return Run(
        world_size=size,
        collectives_matched=matched.count,
        transfer_ns=round(matched.transfer_ns / steps),
        skew_ns=skew,
        straggler_rank=None if slowest is None else ranks[slowest].rank,
        straggler_cause=None if slowest is None else cause,
        skew_causes=matched.causes,
        late_ranks=[ranks[n].rank for n in together] or UNSET,
        straggler_wait_ns=UNSET if slowest is None else round(matched.waited_for(slowest) / steps),
    )

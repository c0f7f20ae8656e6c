"""Whether a long iteration that was recorded once recurs, by the mean step without a profiler."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.model.accounting import MOST_LONG
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.verdict.thresholds import FIXED


def with_mean_step(rank: Rank, step_ms: float | None, notable: float) -> Rank:
    """The rank, whose long iteration recurs where steps without the profiler tell that.

    No profiler makes a step shorter. A loop that takes longer without it than its regular
    iterations do with it has others among its steps: those that were recorded, if they do more work
    than the rest and if one in three of them, at most, is enough. A loop that waits for its loader
    may be longer for that.

    Args:
        step_ms: without the profiler, mean of all steps; None where it is not known.
        notable: part of a step from which on it waits for data.
    """
    long = rank.long
    if isinstance(long, UnsetType) or step_ms is None or not _may_recur(long):
        return rank
    waited = rank.summary.partition_ns["idle_data_wait"] or 0
    timed = 0.0 if isinstance(rank.timed_wait_ms, UnsetType) else rank.timed_wait_ms
    if max(waited / max(rank.summary.window_ns, 1), timed / step_ms) >= notable:
        return rank
    more = step_ms - long.regular_ms
    each = long.extra_ns / len(long.indices) / 1e6
    if step_ms < FIXED.mean_recurs * long.regular_ms or more * MOST_LONG > each:
        return rank
    return replace(rank, long=replace(long, once=False, mean_step_ms=round(step_ms, 6)))


def _may_recur(long: LongIterations) -> bool:
    """Whether nothing else tells that it recurs, and what it does more is work of the program."""
    return long.once and long.more_work is not UNSET and bool(long.more_work)

"""What holds the host up as long with a profiler as without, and not as long in every step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from msgspec import UNSET

from traceprobe.records.rank import Rank
from traceprobe.verdict.thresholds import FIXED


def held_up_ns(ranks: Sequence[Rank]) -> float:
    """Idle time of the device per step, mean of the ranks, in pauses and stalls of the host.

    Pauses are long stretches without a call; stalls the driver's calls for memory, compilations and
    collections of garbage.
    """
    return fmean(held_up_of(rank) for rank in ranks)


def held_up_longer_ns(ranks: Sequence[Rank]) -> float:
    """How much longer these may have taken in the steps that were timed without the profiler."""
    return FIXED.held_up_varies * held_up_ns(ranks)


def held_up_of(rank: Rank) -> float:
    """The same of one rank."""
    host = rank.summary.host
    stalls = (host.device_allocations, host.compilations, host.garbage_collections)
    cost = sum(each.cost_ns for each in stalls if each is not UNSET)
    return (host.pause_ns + cost) / rank.summary.steps

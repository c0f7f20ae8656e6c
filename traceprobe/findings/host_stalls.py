"""What of the host's lateness has a cause of its own, which other findings do not count again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.formatting import significant
from traceprobe.records.host_stalls import (
    Compilations,
    CompiledRegions,
    DeviceAllocations,
    GarbageCollections,
)
from traceprobe.records.rank import Rank
from traceprobe.records.site import Site
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

Stall = DeviceAllocations | Compilations | GarbageCollections | CompiledRegions


def allocations(rank: Rank) -> DeviceAllocations | None:
    """What a rank takes from the driver and gives back in most of its iterations, if it does.

    Set-up may take memory in two steps, and give some back in one; of two iterations both do.
    """
    found, steps = rank.summary.host.device_allocations, rank.summary.iterations_used
    if found is UNSET:
        return None
    if 1 < steps < FIXED.stalls and found.frees_iterations == steps:
        return found
    most = found.iterations >= FIXED.stalls and found.iterations / steps > FIXED.stalled
    return found if most else None


def compilations(rank: Rank) -> Compilations | None:
    """What a rank compiles again and again, if it does."""
    found = rank.summary.host.compilations
    return None if found is UNSET or not rank.summary.iterations_used else found


def collections(rank: Rank) -> GarbageCollections | None:
    """What the garbage collector of a rank does, if ranges tell it."""
    found = rank.summary.host.garbage_collections
    return None if found is UNSET else found


def cost_ms(evidence: Evidence, stall: Callable[[Rank], Stall | None]) -> float:
    """Idle time per step because of some stalls, as of `Evidence.delaying_ms`.

    Without the profiler's part.
    """

    def cost(rank: Rank) -> float:
        found = stall(rank)
        return 0.0 if found is None else found.cost_ns

    return min(evidence.delaying_ms(cost), evidence.host_ms())


def more_without_profiler(evidence: Evidence, ms: float) -> str:
    """That stalls cost more of a step without the profiler, in a sentence; empty where they do not.

    Args:
        ms: what they cost in the capture.
    """
    most = evidence.spared_ms(ms)
    if most <= ms * FIXED.more_stalls:
        return ""
    return f"up to {significant(most)} ms without the profiler, which slowed the rest of the host"


def pause_ms(evidence: Evidence) -> float:
    """Idle time per step in which the host pauses, as of `Evidence.delaying_ms`."""
    return evidence.delaying_ms(lambda rank: rank.summary.host.pause_ns)


def mean_pause_ms(evidence: Evidence) -> float:
    """The same as the mean of the ranks."""
    return evidence.of_steps((r.summary.host.pause_ns, r.summary.steps) for r in evidence.ranks)


def unnamed_ms(evidence: Evidence) -> float:
    """`Evidence.host_ms` without what has a finding of its own."""
    return max(evidence.host_ms() - _stalled_ms(evidence) - pause_ms(evidence), 0.0)


def _stalled_ms(evidence: Evidence) -> float:
    return sum(cost_ms(evidence, stall) for stall in _NAMED)


def named_lines(evidence: Evidence) -> set[str]:
    """Lines of the program that have a finding of their own."""
    found = (stall(rank) for rank in evidence.ranks for stall in _NAMED)
    return {line for each in found if each is not None for line in each.lines}


_NAMED: tuple[Callable[[Rank], DeviceAllocations | Compilations | GarbageCollections | None], ...]
_NAMED = (allocations, compilations, collections)

WITHOUT_STALLS = Changes(removed=frozenset({"stalls"}))


def look_at(sites: Sequence[Site]) -> str:
    """What of the program to look at, as the beginning of an advice; empty where nothing tells."""
    kinds = [site.kind for site in sites if site.kind]
    return f"Look at that {kinds[0]}" if kinds else ""


def line_sites(lines: Sequence[Mapping[str, int]], ms: float) -> list[Site]:
    """Lines of the program as sites, which share a time by their weights.

    Args:
        lines: by rank. The first that has some counts: all ranks run the same program.
    """
    known: Mapping[str, int] = next(filter(None, lines), {})
    whole = sum(known.values())
    if not whole:
        return []
    return [
        Site(
            line=line,
            within=None,
            call=None,
            ms_per_step=round(ms * weight / whole, 6),
            part=round(weight / whole, 6),
        )
        for line, weight in known.items()
    ]

"""Work that a rank does for nothing: of the rank with most of it, per step, and what would go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from traceprobe.findings.evidence import Evidence, factor_without
from traceprobe.formatting import counted
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes


class Counted(Protocol):
    """Totals of kernels, over so many iterations."""

    @property
    def total_ns(self) -> int: ...
    @property
    def kernels(self) -> int: ...
    @property
    def iterations(self) -> int: ...


Work = TypeVar("Work", bound=Counted)


class NeedlessWork(msgspec.Struct, Generic[Work], frozen=True):
    """That of the rank with most of it a step.

    Args:
        alone: that no other rank has any, as a phrase; empty where others do, or there are none.
    """

    work: Work
    rank: Rank
    alone: str

    @property
    def ms(self) -> float:
        """Its kernels' durations, a step."""
        return self.work.total_ns / self.work.iterations / 1e6

    def per_step(self, total: int, what: str) -> str:
        """A total of it a step, as words."""
        return counted(round(total / self.work.iterations, 1), what)


def most_needless(
    evidence: Evidence, of_rank: Callable[[Rank], Work | UnsetType]
) -> NeedlessWork[Work] | None:
    """The most among the ranks; None where none has any."""
    each = ((of_rank(rank), rank) for rank in evidence.ranks)
    found = [(work, rank) for work, rank in each if work is not UNSET]
    if not found:
        return None
    most, rank = max(found, key=lambda pair: pair[0].total_ns / pair[0].iterations)
    alone = f"on rank {rank.rank} alone" if len(found) == 1 < len(evidence.ranks) else ""
    return NeedlessWork(most, rank, alone)


def part_of_launches(found: NeedlessWork[Work], phase: str) -> float:
    """Its part of the kernels of a phase; 0 where their number is not known."""
    known = found.rank.summary.host.phase_kernels
    whole = 0.0 if known is UNSET else known.get(phase, 0.0)
    return min(found.work.kernels / found.work.iterations / whole, 1.0) if whole else 0.0


def left_out(
    evidence: Evidence, found: NeedlessWork[Work], phase: str, part: float = 0.0
) -> Changes | None:
    """A phase without it; None of one of several ranks.

    Args:
        part: of the phase's launches, what goes as well.
    """
    now = evidence.busy_ms(phase)
    if not now or len(evidence.ranks) > 1:
        return None
    fewer = {phase: round(1 / (1 - part), 2)} if 0 < part < 1 else {}
    return Changes(speedup={phase: factor_without(found.ms, now)}, fewer=fewer)

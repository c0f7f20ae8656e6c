"""Backward passes without a part of their kernels: what goes, and what it is played as."""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence, factor_without
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes


def part_of_backward(rank: Rank, kernels_per_step: float) -> float:
    """What part of a rank's kernels of backward passes so many are; 0 where that is not known."""
    known = rank.summary.host.phase_kernels
    whole = 0.0 if known is UNSET else known.get("backward", 0.0)
    return min(kernels_per_step / whole, 1.0) if whole else 0.0


def without_kernels(evidence: Evidence, ms: float, part: float) -> Changes | None:
    """Backward passes without kernels of so many ms a step and their launches, of one rank alone.

    Args:
        part: of all launches of backward passes.
    """
    now = evidence.busy_ms("backward")
    if not now or len(evidence.ranks) > 1:
        return None
    fewer = {"backward": round(1 / (1 - part), 2)} if 0 < part < 1 else {}
    return Changes(speedup={"backward": factor_without(ms, now)}, fewer=fewer)

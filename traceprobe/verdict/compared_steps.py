"""The step of the capture beside the one without a profiler: what their lengths say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from traceprobe.formatting import duration
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.verdict.held_up import held_up_longer_ns, held_up_ns
from traceprobe.verdict.made_before import MadeBefore, made_before, may_be_queued
from traceprobe.verdict.step_times import per_step
from traceprobe.verdict.thresholds import FIXED

HEAVY = frozenset({"operators", "stacks", "memory"})
"""Marks of a profiler that slows the host enough to matter."""


class Compared(msgspec.Struct, frozen=True):
    """What the length of a step in the capture says beside the one without a profiler."""

    doubt: str | None = None
    unseen: float = 0.0
    host_ruled_out: bool = False
    notes: list[str] = msgspec.field(default_factory=list)


def compare_steps(
    ranks: Sequence[Rank],
    step_ns: float,
    unprofiled_ns: float,
    waits_ns: Mapping[int, float],
    profiled: frozenset[str],
    doubt: str | None,
    before: MadeBefore | None,
) -> Compared:
    """Whether the capture is of the same conditions, and whether the host can be its limit.

    Ranks step together: that the mean of one is a little shorter says nothing.

    Args:
        step_ns: the mean of the ranks in the capture.
    """
    notes = []
    waits_more = longest_unseen_wait(ranks, waits_ns)
    longer = far_longer(unprofiled_ns, step_ns)
    if before is not None:
        doubt = before.sentence
    elif far_longer(unprofiled_ns, step_ns + waits_more + held_up_longer_ns(ranks)):
        doubt = _otherwise(unprofiled_ns / step_ns)
    elif far_longer(unprofiled_ns, step_ns + waits_more):
        notes.append(
            f"a step took {duration(unprofiled_ns - step_ns)} longer without the profiler than "
            "under it: pauses and stalls of the host, which no profiler slows down, vary by "
            "that much"
        )
    elif longer:
        notes.append(
            f"without the profiler a step waits {duration(waits_more)} longer for its loader, "
            "which fed the recorded steps from batches made before"
        )
    unseen = 0.0
    if before is not None and (before.unseen_ms is None or before.assumed):
        unseen = before.hidden
    elif longer:
        unseen = max(1 - (step_ns + waits_more) / unprofiled_ns, 0.0)
    if doubt is not None:
        return Compared(doubt, unseen, notes=[*notes, doubt])
    slowed = bool(profiled & HEAVY) and not _mostly_held_up(ranks) and not _has_rare(ranks)
    ruled_out = slowed and step_ns + waits_more <= unprofiled_ns
    if ruled_out:
        notes.append(
            "the profiled step is no longer than the unprofiled one, although the profiler slows "
            "the host: the host does not limit this run"
        )
    return Compared(None, unseen, ruled_out, notes)


def timed_waits_ns(ranks: Sequence[Rank]) -> dict[int, float]:
    """Waiting for the loader per step without the profiler, of the ranks where it was timed."""
    return {
        rank.rank: 1e6 * rank.timed_wait_ms
        for rank in ranks
        if not isinstance(rank.timed_wait_ms, msgspec.UnsetType)
    }


def fed_before(
    ranks: Sequence[Rank],
    load_ms: float | None,
    step_ms: float | None,
    unprofiled_ms: float | None,
    doubt: str | None = None,
) -> MadeBefore | None:
    """That the recorded steps of these ranks were fed from batches made before, where they were.

    Args:
        load_ms, step_ms, unprofiled_ms: as `made_before` takes them.
        doubt: why the step without the profiler is not that of the recorded ones, where it may not
            be: then nothing is concluded from it alone.
    """
    timed, queued = bool(timed_waits_ns(ranks)), doubt is None and may_be_queued(ranks)
    return made_before(load_ms, step_ms, unprofiled_ms, timed=timed, queued=queued)


def longest_unseen_wait(ranks: Sequence[Rank], waits_ns: Mapping[int, float]) -> float:
    """What the step waits longer for a loader without the profiler than in the capture, ns.

    Ranks step together: the one that waits longest holds up all.

    Args:
        waits_ns: of each rank without the profiler, where it is known.
    """
    counted = [rank for rank in ranks if rank.summary.iterations_used]
    return max(0.0, *unseen_waits_ns(counted, waits_ns).values())


def unseen_waits_ns(ranks: Sequence[Rank], waits_ns: Mapping[int, float]) -> dict[int, float]:
    """How much longer than in the capture each rank waits for its loader without the profiler."""
    return {r.rank: waits_ns.get(r.rank, 0.0) - per_step(r).data_wait for r in ranks}


def far_longer(unprofiled_ns: float, profiled_ns: float) -> bool:
    """Whether a step without the profiler is longer than one with it by more than chance."""
    return profiled_ns * FIXED.distortion < unprofiled_ns


def _otherwise(times: float) -> str:
    """That two steps are not of one kind, where no loader and no pause explains it.

    Args:
        times: how much longer the one without the profiler is.
    """
    parts = (
        f", or a step of the program is {times:.0f} or more of these iterations (`--step` says "
        "what marks one)"
        if times >= FIXED.several_iterations
        else ""
    )
    return (
        "a step takes far less time under the profiler than without it, which no profiler does: "
        f"the two were measured under different conditions{parts}, so one says little about the "
        "other"
    )


def _has_rare(ranks: Sequence[Rank]) -> bool:
    """Whether steps without the profiler are long that are too rare among the recorded ones.

    The mean of the recorded steps is then as long as chance has it.
    """
    long = [rank.long for rank in ranks if isinstance(rank.long, LongIterations)]
    return any(each.timed_long is not msgspec.UNSET for each in long)


def _mostly_held_up(ranks: Sequence[Rank]) -> bool:
    """Whether half of what is overhead in the capture, or more, are pauses and stalls of the host.

    A profiler slows calls and operators. These last as long without.
    """
    overhead = fmean(per_step(rank).overhead for rank in ranks)
    return 0 < overhead <= 2 * held_up_ns(ranks)

"""Shares of a run after what the capture itself distorted is taken out.

Three corrections, all of which leave `partition_ns` and `summary.share` as captured: waiting for
other ranks is not transfer, a profiler slows the host but not the kernels, and batches that lay
ready when the capture began say nothing about the loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from traceprobe.formatting import duration
from traceprobe.model.taxonomy import SHARE_CLASSES, SHARES
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.records.run import Run
from traceprobe.verdict.drift import Drift, iterations_after
from traceprobe.verdict.held_up import held_up_longer_ns, held_up_ns
from traceprobe.verdict.made_before import MadeBefore
from traceprobe.verdict.thresholds import FIXED

HEAVY = frozenset({"operators", "stacks", "memory"})
"""Marks of a profiler that slows the host enough to matter."""
MAX_NOTES = 4
"""Notes on single ranks, of which each may have two."""


class Times(msgspec.Struct, frozen=True):
    """ns per step of one rank.

    `skew` is exposed waiting for other ranks, 0 where unknown; `unexplained` is idle time of
    unknown cause, and `lasting` what else is neither work nor waiting, which survives a profiler.
    `unseen_skew` is the part of `skew` that is not in the capture: waiting for ranks that wait
    longer for their loaders without the profiler.
    """

    data_wait: float
    h2d: float
    communication: float
    skew: float
    overhead: float
    compute: float
    lasting: float
    unexplained: float
    unseen_skew: float = 0.0

    @property
    def other(self) -> float:
        """What no bound is about."""
        return self.lasting + self.unexplained

    @property
    def io(self) -> float:
        """Waiting for data and copying it."""
        return self.data_wait + self.h2d

    @property
    def total(self) -> float:
        """The step."""
        return self.io + self.communication + self.skew + self.overhead + self.compute + self.other


class Corrected(msgspec.Struct, frozen=True):
    """The shares that the verdict judges.

    Args:
        shares: fractions, sum 1. overhead_ruled_out: the profiler slowed the host and the step did
            not get longer, so the host cannot be the limit. split_unknown: communication and
            overhead share a remainder that one rank cannot split. notes: what was corrected.
        step_ms: what the shares are fractions of, the mean of the ranks; None without steps.
        profiled_step_ms, unprofiled_step_ms: the step as the capture has it, and as it is without
            a profiler, where that is known.
        unexplained_idle: part of `other` in which devices idle and nothing tells why.
        unexplained_wait: part of `other` that is waiting for ranks that have more of nothing.
        skew: part of all shares together that is waiting for other ranks; None where one rank
            cannot tell it from transfer.
        drift: the change within the capture after which the shares were taken, if there is one.
        calibration_doubt: why the unprofiled step may be that of another clock, another load or
            another part of the run; None where nothing speaks for that.
        unseen: part of the step without a profiler that is not in the capture, of which nothing
            tells what it is. unseen_loader: whether it may be waiting for a loader.
    """

    shares: dict[str, float]
    overhead_ruled_out: bool = False
    split_unknown: bool = False
    notes: list[str] = msgspec.field(default_factory=list)
    unexplained_wait: float = 0.0
    skew: float | None = None
    drift: Drift | None = None
    calibration_doubt: str | None = None
    unseen: float = 0.0
    unexplained_idle: float = 0.0
    step_ms: float | None = None
    profiled_step_ms: float | None = None
    unprofiled_step_ms: float | None = None
    unseen_loader: bool = False


def per_step(rank: Rank, drift: Drift | None = None) -> Times:
    """A rank's partition in the five groups plus skew; after `drift` where iterations follow it.

    What holds up a device that has its work is no overhead: nothing that launches less or sooner
    takes it away. Its cause is as unknown as that of a silent host.
    """
    totals, steps = rank.summary.partition_ns, rank.summary.steps
    held = rank.summary.host.held_idle_ns
    waited = 0
    if rank.summary.communication is not None:
        waited = rank.summary.communication.skew_exposed_ns or 0
    late = iterations_after(rank, drift) if drift is not None else []
    if late:
        totals = {n: sum((i.partition_ns or {}).get(n) or 0 for i in late) for n in totals}
        waited, steps = sum(i.skew_exposed_ns or 0 for i in late), len(late)
        held = 0  # of single iterations it is not known
    part = {name: (value or 0) / steps for name, value in totals.items()}
    skew = waited / steps
    return Times(
        data_wait=part["idle_data_wait"],
        h2d=part["h2d"],
        communication=part["communication"] - skew,
        skew=skew,
        overhead=sum(part[name] for name in SHARE_CLASSES["overhead"]) - held / steps,
        compute=sum(part[name] for name in SHARE_CLASSES["compute"]),
        lasting=sum(part[name] for name in SHARE_CLASSES["other"]) - part["idle_unexplained"],
        unexplained=part["idle_unexplained"] + held / steps,
    )


def correct(
    ranks: Sequence[Rank],
    run: Run | None,
    unprofiled_ns: float | None,
    profiled: frozenset[str],
    drift: Drift | None = None,
    doubt: str | None = None,
    before: MadeBefore | None = None,
) -> Corrected:
    """Correct and average the ranks.

    Args:
        unprofiled_ns: step time without a profiler, if known.
        profiled: marks of profiling found in the inputs.
        drift: where the loader's queue ran dry. What was timed without a profiler is more than
            what a few steps show, so known waits come before it.
        doubt: why the unprofiled step is not that of the profiled ones, where it may not be.
        before: that the steps were fed from batches made before; None where waits were timed.
    """
    waits_ns = timed_waits_ns(ranks)
    unseen_ms = None if before is None else before.unseen_ms
    if unseen_ms is not None:
        waits_ns = {rank.rank: per_step(rank).data_wait + 1e6 * unseen_ms for rank in ranks}
    if waits_ns:
        drift = None
    matched = run is not None and run.transfer_ns is not None
    times, notes, distorted = [], [], []
    split_unknown = False
    steps = []
    if drift is not None:
        notes.append(
            f"prefetched batches hid the loader's speed before iteration {drift.index}: a step "
            f"took {duration(drift.before.step_ns)} until then and "
            f"{duration(drift.after.step_ns)} afterwards; the shares are those afterwards"
        )
    for rank in ranks:
        recorded = per_step(rank, drift)
        after = recorded
        if unprofiled_ns is not None and rank.summary.iterations_used:
            waited = waits_ns.get(rank.rank)
            after = _without_profiler(recorded, unprofiled_ns, waited, matched)
            split_unknown |= not matched and recorded.communication > 0 and after != recorded
            steps.append(recorded.total)
            unfit = after.total - unprofiled_ns
            if unfit > FIXED.misfit * unprofiled_ns:
                distorted.append(
                    f"rank {rank.rank}: {duration(unfit)} per step of GPU work, copies and data "
                    "wait do not fit into the unprofiled step"
                )
            if recorded.total - after.total > FIXED.taken_out * recorded.total:
                distorted.append(
                    f"rank {rank.rank}: {duration(recorded.total - after.total)} per step of "
                    "host time and waiting occur only under the profiler and were taken out"
                )
        times.append(after)
    notes += distorted[:MAX_NOTES]
    if len(distorted) > MAX_NOTES:
        notes.append(f"and {len(distorted) - MAX_NOTES} more such notes about other ranks")
    if unprofiled_ns is not None and matched:
        seen = [per_step(rank, drift).data_wait for rank in ranks]
        times = _waiting_for_loaders_of_others(times, seen, unprofiled_ns)
    ruled_out, unseen = False, 0.0
    # Ranks step together: that the mean of one is a little shorter says nothing.
    if unprofiled_ns is not None and steps:
        step = sum(steps) / len(steps)
        waits_more = longest_unseen_wait(ranks, waits_ns)
        if before is not None:
            doubt = before.sentence
        elif far_longer(unprofiled_ns, step + waits_more + held_up_longer_ns(ranks)):
            doubt = (
                "a step takes far less time under the profiler than without it, which no profiler "
                "does: the two were measured under different conditions, so one says little about "
                "the other"
            )
        elif far_longer(unprofiled_ns, step + waits_more):
            notes.append(
                f"a step took {duration(unprofiled_ns - step)} longer without the profiler than "
                "under it: pauses and stalls of the host, which no profiler slows down, vary by "
                "that much"
            )
        elif far_longer(unprofiled_ns, step):
            notes.append(
                f"without the profiler a step waits {duration(waits_more)} longer for its loader, "
                "which fed the recorded steps from batches made before"
            )
        if before is not None and before.unseen_ms is None:
            unseen = before.hidden
        elif far_longer(unprofiled_ns, step):
            unseen = max(1 - (step + waits_more) / unprofiled_ns, 0.0)
        slowed = bool(profiled & HEAVY) and not _mostly_held_up(ranks) and not _has_rare(ranks)
        ruled_out = doubt is None and slowed and step + waits_more <= unprofiled_ns
        if doubt is not None:
            notes.append(doubt)
    else:
        doubt = None
    if ruled_out:
        notes.append(
            "the profiled step is no longer than the unprofiled one, although the profiler slows "
            "the host: the host does not limit this run"
        )
    shares, unexplained, skew = _shares(times, run)
    has_steps = any(rank.summary.iterations_used for rank in ranks)
    return Corrected(
        shares,
        ruled_out,
        split_unknown,
        notes,
        unexplained,
        skew if matched else None,
        drift,
        doubt,
        unseen,
        fmean(t.unexplained / t.total if t.total else 0.0 for t in times),
        step_ms=fmean(t.total for t in times) / 1e6 if has_steps else None,
        profiled_step_ms=fmean(steps) / 1e6 if steps else None,
        unprofiled_step_ms=unprofiled_ns / 1e6 if unprofiled_ns is not None and steps else None,
    )


def with_unseen_loader(corrected: Corrected, ranks: Sequence[Rank]) -> Corrected:
    """That batches made ahead may be why steps are shorter in the capture, where a loader has such.

    Args:
        corrected: of a run whose loader's pace is not known.
    """
    fed = any(
        rank.summary.partition_ns["idle_data_wait"] is not None
        and not rank.summary.host.loader_in_process
        for rank in ranks
    )
    if not fed or not corrected.unseen:
        return corrected
    why = (
        "a slow loader is hidden as long as batches last that its workers made before the profiler "
        "started: record more steps than lie ready"
    )
    return replace(corrected, notes=[*corrected.notes, why], unseen_loader=True)


def timed_waits_ns(ranks: Sequence[Rank]) -> dict[int, float]:
    """Waiting for the loader per step without the profiler, of the ranks where it was timed."""
    return {
        rank.rank: 1e6 * rank.timed_wait_ms
        for rank in ranks
        if not isinstance(rank.timed_wait_ms, msgspec.UnsetType)
    }


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


def _without_profiler(
    times: Times, unprofiled: float, data_wait: float | None, matched: bool
) -> Times:
    """Shrink what a profiler inflates until the step has its unprofiled length, never below 0.

    Work on the GPU survives a profiler. A slowed host gives the loader time to catch up, so a
    measured loader wait replaces the trace's, as far as the unprofiled step has room for it.
    """
    if not matched:  # alone, a rank cannot tell transfer from waiting
        times = replace(times, communication=times.communication + times.skew, skew=0.0)
    room = max(unprofiled - times.compute - times.h2d - times.lasting, 0.0)
    waited = times.data_wait if data_wait is None else data_wait
    times = replace(times, data_wait=min(waited, room))
    rest = room - times.data_wait
    communication = times.communication + times.skew
    late = times.overhead + times.unexplained
    if communication + late <= rest:
        return times
    if matched:
        kept = min(times.communication, rest)
        scale = min((rest - kept) / late, 1.0) if late else 0.0
        skew = min(times.skew, max(rest - kept - late, 0.0))
    else:
        scale = rest / (communication + late)
        kept, skew = times.communication * scale, 0.0
    return replace(
        times,
        communication=kept,
        skew=skew,
        overhead=times.overhead * scale,
        unexplained=times.unexplained * scale,
    )


def _waiting_for_loaders_of_others(
    times: Sequence[Times], seen: Sequence[float], unprofiled: float
) -> list[Times]:
    """Times with the waiting for ranks whose loaders are slower than the capture shows.

    Args:
        seen: waiting for data in the capture, of each rank. unprofiled: the step; no rank waits
            for longer than it has room.
    """
    more = [max(t.data_wait - waited, 0.0) for t, waited in zip(times, seen, strict=True)]
    found = []
    for t, own in zip(times, more, strict=True):
        held = max(min(max(more) - own, unprofiled - t.total), 0.0)
        found.append(replace(t, skew=t.skew + held, unseen_skew=held))
    return found


def _shares(times: Sequence[Times], run: Run | None) -> tuple[dict[str, float], float, float]:
    """Mean of the ranks' shares, the waiting in it that nothing explains, and all waiting.

    Skew counts for what the late ranks had more of. Where they had more of nothing, it is not
    transfer either: it is time of unknown cause, as `idle_unexplained` is.
    """
    mean = dict.fromkeys(SHARES, 0.0)
    causes = {"communication": 1.0}  # alone, a rank cannot tell waiting from transfer
    if run is not None and run.transfer_ns is not None:
        causes = run.skew_causes or {"other": 1.0}
    skew = unseen = 0.0
    counted = [t for t in times if t.total > 0]
    for t in counted:
        for name in SHARES:
            mean[name] += getattr(t, name) / t.total / len(counted)
        skew += t.skew / t.total / len(counted)
        unseen += t.unseen_skew / t.total / len(counted)
    for name, part in causes.items():
        mean[name] += part * (skew - unseen)
    mean["io"] += unseen
    shares = {name: round(value, 6) for name, value in mean.items()}
    return shares, causes.get("other", 0.0) * (skew - unseen), skew

"""Shares of a run after what the capture itself distorted is taken out.

Three corrections, all of which leave `partition_ns` and `summary.share` as captured: waiting for
other ranks is not transfer, a profiler slows the host but not the kernels, and batches that lay
ready when the capture began say nothing about the loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from traceprobe.formatting import duration, percent
from traceprobe.model.taxonomy import SHARES
from traceprobe.records.rank import Rank
from traceprobe.records.run import Run
from traceprobe.verdict.compared_steps import Compared, compare_steps, timed_waits_ns
from traceprobe.verdict.drift import Drift
from traceprobe.verdict.held_up import held_up_of
from traceprobe.verdict.made_before import MadeBefore
from traceprobe.verdict.step_times import Times, per_step
from traceprobe.verdict.thresholds import FIXED

_TAKEN_OVER = (
    f"{percent(1 - FIXED.host_usual, 0)} of late launches are attributed to the profiler; without "
    "it the step spends that time waiting for data"
)
MAX_NOTES = 4
"""Notes on single ranks, of which each may have two."""


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
            tells what it is. unseen_loader: whether it may be waiting for a loader; assumed_wait:
            whether the shares count it as that. taken_over: part of the step that is waiting for
            data instead of the host's time, which the profiler lengthened.
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
    assumed_wait: bool = False
    taken_over: float = 0.0


def correct(
    ranks: Sequence[Rank],
    run: Run | None,
    unprofiled_ns: float | None,
    profiled: frozenset[str],
    drift: Drift | None = None,
    doubt: str | None = None,
    before: MadeBefore | None = None,
    *,
    keeps_up: bool = False,
) -> Corrected:
    """Correct and average the ranks.

    Args:
        unprofiled_ns: step time without a profiler, if known.
        profiled: marks of profiling found in the inputs.
        drift: where the loader's queue ran dry. What was timed without a profiler is more than
            what a few steps show, so known waits come before it.
        doubt: why the unprofiled step is not that of the profiled ones, where it may not be.
        before: that the steps were fed from batches made before; None where waits were timed.
        keeps_up: whether the loader is known to make batches faster than steps use them.
    """
    waits_ns = timed_waits_ns(ranks)
    if before is not None and before.unseen_ms is not None:
        unseen_ns = 1e6 * before.unseen_ms
        waits_ns = {rank.rank: per_step(rank).data_wait + unseen_ns for rank in ranks}
    if waits_ns:
        drift = None
    matched = run is not None and run.transfer_ns is not None
    recorded = [per_step(rank, drift) for rank in ranks]
    times = recorded
    steps = [t.total for rank, t in zip(ranks, recorded, strict=True) if _has_steps(rank)]
    notes = [] if drift is None else [_after_drift(drift)]
    split_unknown, compared, taken_over = False, Compared(), 0.0
    if unprofiled_ns is not None:
        times = [
            _without_profiler(own, unprofiled_ns, waits_ns.get(rank.rank), matched)
            if _has_steps(rank)
            else own
            for rank, own in zip(ranks, recorded, strict=True)
        ]
        notes += _distortions(ranks, recorded, times, unprofiled_ns)
        if matched:
            seen = [own.data_wait for own in recorded]
            times = _waiting_for_loaders_of_others(times, seen, unprofiled_ns)
        else:
            split_unknown = any(
                own.communication > 0 and after != own
                for own, after in zip(recorded, times, strict=True)
            )
        if steps:
            step_ns = fmean(steps)
            compared = compare_steps(
                ranks, step_ns, unprofiled_ns, waits_ns, profiled, doubt, before
            )
            notes += compared.notes
            if compared.host_ruled_out and not waits_ns and not keeps_up:
                slowed, times = times, _waiting_instead(ranks, times)
                taken_over = _overhead(slowed) - _overhead(times)
                notes += [_TAKEN_OVER] if taken_over else []
    shares, unexplained, skew = _shares(times, run)
    return Corrected(
        shares,
        compared.host_ruled_out,
        split_unknown,
        notes,
        unexplained,
        skew if matched else None,
        drift,
        compared.doubt,
        compared.unseen,
        fmean(t.unexplained / t.total if t.total else 0.0 for t in times),
        step_ms=fmean(t.total for t in times) / 1e6 if steps else None,
        profiled_step_ms=fmean(steps) / 1e6 if steps and unprofiled_ns is not None else None,
        unprofiled_step_ms=unprofiled_ns / 1e6 if unprofiled_ns is not None and steps else None,
        assumed_wait=before is not None and before.assumed,
        taken_over=taken_over,
    )


def _waiting_instead(ranks: Sequence[Rank], times: Sequence[Times]) -> list[Times]:
    """Times of loops that wait for their loaders as much longer as the profiler slowed their hosts.

    Their step is no shorter without the profiler, so that what sets its pace is not the host. Where
    that is workers that make batches, the host only has less to do until the next one comes.
    Calls that wait, launches on their way, pauses and stalls last as long with a profiler.
    """
    waited, whole = fmean(t.data_wait for t in times), fmean(t.total for t in times)
    sent = fmean(t.communication + t.skew for t in times)
    if waited < FIXED.pace_wait * whole or waited <= sent:
        return list(times)
    found = []
    for rank, own in zip(ranks, times, strict=True):
        summary = rank.summary
        slowed = (summary.partition_ns["idle_host"] or 0) / summary.steps - held_up_of(rank)
        more = (1 - FIXED.host_usual) * min(max(slowed, 0.0), own.overhead)
        if summary.host.loader_in_process or not own.data_wait:
            more = 0.0
        found.append(replace(own, data_wait=own.data_wait + more, overhead=own.overhead - more))
    return found


def _overhead(times: Sequence[Times]) -> float:
    """Overhead as a part of the step, mean of the ranks."""
    return fmean(t.overhead / t.total if t.total else 0.0 for t in times)


def _has_steps(rank: Rank) -> bool:
    return rank.summary.iterations_used > 0


def _after_drift(drift: Drift) -> str:
    return (
        f"prefetched batches hid the loader's speed before iteration {drift.index}: a step "
        f"took {duration(drift.before.step_ns)} until then and "
        f"{duration(drift.after.step_ns)} afterwards; the shares are those afterwards"
    )


def _distortions(
    ranks: Sequence[Rank], recorded: Sequence[Times], times: Sequence[Times], unprofiled_ns: float
) -> list[str]:
    """What of single ranks does not fit into the unprofiled step, and what was taken out of it."""
    notes = []
    for rank, own, after in zip(ranks, recorded, times, strict=True):
        if not _has_steps(rank):
            continue
        unfit, taken = after.total - unprofiled_ns, own.total - after.total
        if unfit > FIXED.misfit * unprofiled_ns:
            notes.append(
                f"rank {rank.rank}: {duration(unfit)} per step of GPU work, copies and data "
                "wait do not fit into the unprofiled step"
            )
        if taken > FIXED.taken_out * own.total:
            notes.append(
                f"rank {rank.rank}: {duration(taken)} per step of "
                "host time and waiting occur only under the profiler and were taken out"
            )
    if len(notes) > MAX_NOTES:
        return [
            *notes[:MAX_NOTES],
            f"and {len(notes) - MAX_NOTES} more such notes about other ranks",
        ]
    return notes


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

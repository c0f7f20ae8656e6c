"""How fast the loaders of a run make batches, where they are late."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType
from msgspec.structs import replace

from traceprobe.records.loader import Loader
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.run import Run, straggler_of
from traceprobe.replay.tasks import RankSchedule
from traceprobe.verdict.thresholds import FIXED

LATE_LOADER = 0.02
"""Share of the step in which the GPU waits for data, from which on the loader sets the pace."""
BUSY_LOADER = 0.8
"""Part of the time that the workers of a loader that sets the pace are at work, at least; they are
all of it but for handing batches over."""
WAITING_HOST = 0.2
"""The same of the host, where the GPU's queue hides it. Handing over a batch that is there takes
time, too; a host that the GPU holds up waits for data only where it gets there before the batch."""
OWN_PACE = 1.05
"""Times its length without a profiler that a step is at most whose pace somebody else sets: the
host is slower beside a profiler, and a loader of its own is not. As between two calibrations."""


def with_loaders(
    schedules: Sequence[RankSchedule], ranks: Sequence[Rank], report: Report, now: float
) -> list[RankSchedule]:
    """The schedules of all ranks that are played, with the pace of each loader that was late.

    Args:
        now: step, ms; without a profiler where that is known.
    """
    waiting = [_waiting(p, rank, now) for p, rank in zip(schedules, ranks, strict=True)]
    late = straggler_of(report.run) if _late_loader(report.run) else None
    # A rank that waits for no data beside one that does waits for that rank.
    some = max(waiting) >= WAITING_HOST
    return [
        schedule
        if (some or late not in (None, rank.rank)) and waited < LATE_LOADER
        else _with_loader(schedule, report, rank, waited, now)
        for schedule, waited, rank in zip(schedules, waiting, ranks, strict=True)
    ]


def _late_loader(run: Run | None) -> bool:
    """Whether the others wait for one rank because of its loader."""
    return run is not None and run.straggler_cause == "io"


def _waiting(schedule: RankSchedule, rank: Rank, now: float) -> float:
    """Part of the step in which the host of a rank waits for data, recorded or timed."""
    waited = _played_wait_ms(schedule)
    step = rank.summary.step_ms.mean if rank.summary.step_ms is not None else now
    timed = 0.0 if isinstance(rank.timed_wait_ms, UnsetType) else rank.timed_wait_ms
    return max(waited / step, timed / now)


def _with_loader(
    schedule: RankSchedule, report: Report, rank: Rank, waited: float, now: float
) -> RankSchedule:
    """A schedule whose loader makes batches as fast as it did, where it was known to be late.

    A loader in the training process itself is no loader of its own: its time is the host's. So is
    the time of a loop that makes its batches without one.

    Args:
        waited: part of the step in which the host waits for data. now: step, ms.
    """
    settings = (report.workload or {}).get("settings")
    told = settings.get("workers") if isinstance(settings, dict) else None
    timed = None if isinstance(report.loader, UnsetType) else report.loader.workers
    if rank.summary.host.loader_in_process or 0 in (told, timed):
        return replace(schedule, loads=True)
    unseen = _waits_elsewhere(rank, waited, now)
    ahead = _ahead(report.loader, now, FIXED.loader_idle if unseen else BUSY_LOADER)
    if ahead and not _waits_in_others(schedule, rank, now):
        return schedule
    if told is None and timed is None and _made_by_the_host(report, rank):
        return replace(schedule, loads=True)
    copied = _recorded_ms(rank, "h2d") / now
    late = report.verdict.shares["io"] - copied
    if late < LATE_LOADER and waited < WAITING_HOST:
        return schedule
    if _slowed_beyond(report, rank, late * now):
        return schedule
    workers = told if timed is None else timed
    known = workers if isinstance(workers, int) and workers > 0 else 1
    # A host that waits while the device still has work gets batches as often as it asks for them.
    hidden = late < LATE_LOADER and isinstance(rank.timed_wait_ms, UnsetType)
    pace = min(now, _host_step_ms(schedule)) if hidden else now
    return replace(schedule, period=pace * 1e6, workers=known)


def _host_step_ms(schedule: RankSchedule) -> float:
    """What the host of a rank takes for a step that nothing holds up: its work, and its waits."""
    spent = float(schedule.tasks.host.sum()) / schedule.iterations / 1e6
    return spent + _played_wait_ms(schedule)


def _slowed_beyond(report: Report, rank: Rank, late_ms: float) -> bool:
    """Whether the profiled steps last longer than those without a profiler but for their waits.

    A loader that makes a batch in a step as long as that is ahead of such steps. What they wait all
    the same is scatter of its batches, or that the host takes them over. Waits that were timed
    without the profiler are of another kind.

    Args:
        late_ms: what the verdict has of waiting, per step.
    """
    if report.quality.observer_effect is None or rank.summary.step_ms is None:
        return False
    waited = _recorded_ms(rank, "idle_data_wait")
    left = rank.summary.step_ms.mean - waited
    timed = late_ms > OWN_PACE * waited
    return not timed and left > OWN_PACE * report.quality.observer_effect.step_ms


def _made_by_the_host(report: Report, rank: Rank) -> bool:
    """Whether a wait that no range names got longer beside the profiler, as the host's work does.

    Where steps wait for a loader of its own, they take as long as it does, and the profiler, which
    slows the host, only leaves less to wait for. Steps that got longer although they wait are those
    of a host that is at work meanwhile. Where only the profiled step is known, a wait that bounds
    the run is taken for a loader's, and a shorter one for the host's. A loader whose own ranges are
    in the trace is not waited for outside of them.
    """
    effect = report.quality.observer_effect
    waited, inferred = rank.summary.partition_ns["idle_data_wait"], rank.summary.host
    if not waited or inferred.data_wait_inferred_ns <= FIXED.mostly_inferred * waited:
        return False
    if inferred.loader_in_workers is True:
        return True
    if effect is None:
        return report.verdict.shares["io"] < report.verdict.thresholds["bound"]
    return effect.ratio > OWN_PACE


def _waits_elsewhere(rank: Rank, waited: float, now: float) -> bool:
    """Whether it waits for data in steps without the profiler, and hardly in those with it.

    To take batches over would be there in both, so workers with time left may be late now and then.
    """
    recorded = _recorded_ms(rank, "idle_data_wait")
    return waited >= WAITING_HOST and recorded < LATE_LOADER * now


def _waits_in_others(schedule: RankSchedule, rank: Rank, now: float) -> bool:
    """Whether a rank waits for data in iterations that are not among those that are played.

    A loader that is fast enough in the mean is late with batches of larger samples, now and then.
    """
    missing = _recorded_ms(rank, "idle_data_wait") - _played_wait_ms(schedule)
    return missing >= LATE_LOADER * now


def _played_wait_ms(schedule: RankSchedule) -> float:
    """Waiting of the host for data in a step, in the iterations that are played."""
    return float(schedule.tasks.data_wait.sum()) / schedule.iterations / 1e6


def _recorded_ms(rank: Rank, name: str) -> float:
    """Time of a class of the partition in a recorded step."""
    return (rank.summary.partition_ns[name] or 0) / max(rank.summary.steps, 1) / 1e6


def _ahead(loader: Loader | UnsetType, now: float, busy: float) -> bool:
    """Whether a loader would make batches faster than they are used, by what was timed of it.

    What a step waits for then is that it takes them over, which is the host's time.

    Args:
        now: step, ms. busy: part of the time that workers are at work, from which on they may be
            late.
    """
    return not isinstance(loader, UnsetType) and 0 < loader.worker_ms < busy * now

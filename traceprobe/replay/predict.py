"""A step with changes: played with them, and without, on the tasks that a report holds."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import msgspec
import numpy as np
from msgspec import UnsetType
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.records.loader import Loader
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.report import Report
from traceprobe.records.run import straggler_of
from traceprobe.replay import buckets
from traceprobe.replay import scenario as changes
from traceprobe.replay.calibrate import (
    AS_RECORDED,
    PROFILED_HOST,
    Calibrated,
    HostBelief,
    calibrate,
)
from traceprobe.replay.contention import LIKELY, LITTLE, MUCH
from traceprobe.replay.pace import Pace, pace_of
from traceprobe.replay.scatter import noise_ms
from traceprobe.replay.scenario import Changes
from traceprobe.replay.simulate import simulate_ranks
from traceprobe.replay.stages import evened, with_more_micro_batches
from traceprobe.replay.tasks import ALONE, RankSchedule, schedule_of
from traceprobe.verdict.allreduce import Links
from traceprobe.verdict.pipeline import is_pipeline
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
RULES_MARGIN = 0.05
"""Relative error of what the rules leave out. How often measured steps lie inside the interval is
told in docs/slowbench.md and docs/validation/whatif.md."""


class Playable(msgspec.Struct, frozen=True):
    """A run that is ready to be played with changes.

    Args:
        now: step as it is, ms; without a profiler where that is known.
        base: what is played.
        ranks: of the run, of which not all may be played. played: those that are.
    """

    report: Report
    now: float
    base: Calibrated
    ranks: int
    played: Sequence[Rank]

    @property
    def straggler(self) -> int | None:
        """Place among `played` of the rank that all others wait for; None without one."""
        number = straggler_of(self.report.run)
        return next((n for n, rank in enumerate(self.played) if rank.rank == number), None)

    @property
    def pipelined(self) -> bool:
        """Whether several ranks are played, which are stages of a pipeline."""
        return is_pipeline(self.played)

    @property
    def late_loader(self) -> bool:
        """Whether the loader limits the run as it is."""
        return any(schedule.period is not None for schedule in self.base.schedules)


class Prediction(msgspec.Struct, frozen=True):
    """A step with changes, ms per step; of `accumulate` batches where they are accumulated.

    Args:
        low, high: around `predicted`.
        sizes, sizes_before: buckets of a step, bytes; empty where they were not changed.
    """

    predicted: float
    low: float
    high: float
    sizes: list[int]
    sizes_before: list[int]
    links: Links | None


def prepare(report: Report) -> Playable:
    """The run of a report, calibrated.

    Raises:
        ImpossibleChange: the report cannot be played.
    """
    ranks = [(rank, rank.replay) for rank in report.ranks if not isinstance(rank.replay, UnsetType)]
    if not ranks and all(rank.device.kind == "cpu" for rank in report.ranks):
        raise ImpossibleChange(
            "a run on a CPU cannot be played: what its host launches it does itself, so nothing "
            "runs beside it; make the change, and `traceprobe compare` both runs"
        )
    if not ranks:
        raise ImpossibleChange(
            "the report holds no iterations to play: it takes at least two used ones in a row, GPU "
            "work with its launches, and an analysis by this version (analyse the trace again)"
        )
    now = now_ms(report)
    fewest = min(replay.iterations for _, replay in ranks)
    ranks = [(rank, replay.last(fewest)) for rank, replay in ranks]
    schedules = [schedule_of(replay) for _, replay in ranks]
    waiting = [_waiting(p, rank, now) for p, (rank, _) in zip(schedules, ranks, strict=True)]
    # A rank that waits for no data beside one that does waits for that rank.
    some = max(waiting) >= WAITING_HOST
    schedules = [
        schedule
        if some and waited < LATE_LOADER
        else _with_loader(schedule, report, rank, waited, now)
        for schedule, waited, (rank, _) in zip(schedules, waiting, ranks, strict=True)
    ]
    schedules = _transfers(schedules, [rank for rank, _ in ranks])
    base = calibrate(schedules, now * 1e6, _host_belief(report))
    world = max(len(schedules), report.run.world_size if report.run is not None else 1)
    played = [replace(rank, replay=replay) for rank, replay in ranks]
    return Playable(report, now, base, world, played)


def predict(run: Playable, asked: Changes) -> Prediction:
    """What a step takes with changes.

    Raises:
        ImpossibleChange: the run has not what is to be changed.
    """
    return predict_all(run, [asked])[0]


def predict_all(run: Playable, every: Sequence[Changes]) -> list[Prediction]:
    """What a step takes with some changes, with others, and so on: all played at once.

    Raises:
        ImpossibleChange: the run has not what is to be changed.
    """
    margin = run.base.host_margin
    # The first is what is likely, the others are the ends of what it may be.
    doubts = [(1.0, LIKELY), (1 - margin, LIKELY), (1 + margin, LIKELY), (1.0, LITTLE), (1.0, MUCH)]
    scenarios: list[list[RankSchedule]] = []
    told = []
    for asked in every:
        schedules, sizes, sizes_before, links = run.base.schedules, list[int](), list[int](), None
        check(run, asked)
        if asked.bucket_mb is not None:
            sizes_before = buckets.sizes_of(schedules[0])
            schedules, sizes, links = buckets.rebucketed(schedules, asked.bucket_mb, run.ranks)
        plays = _plays(run, asked)
        told.append((plays, sizes, sizes_before, links))
        if run.pipelined and "skew" in asked.removed:
            schedules = evened(schedules)
        scenarios.extend(
            [changes.apply(changes.with_host(p, factor), play.changes, left) for p in schedules]
            for play in plays
            for factor, left in doubts
        )
    ranks = iter(simulate_ranks(scenarios, run.base.shapes))
    found = []
    for asked, (plays, sizes, sizes_before, links) in zip(every, told, strict=True):
        steps, *apart = [[play.pace(next(ranks)) for _ in doubts] for play in plays]
        if apart:
            steps = [
                with_more_micro_batches(step, alone, asked.micro_batches)
                for step, alone in zip(steps, *apart, strict=True)
            ]
        predicted, *around = (run.now * step / run.base.step_ns for step in steps)
        noise = hypot(noise_ms(run.report, asked, run.now), predicted * (run.base.factor - 1))
        if asked != Changes():
            noise += RULES_MARGIN * predicted
        low, high = min(predicted, *around) - noise, max(predicted, *around) + noise
        found.append(Prediction(predicted, max(low, 0.0), high, sizes, sizes_before, links))
    return found


class _Play(msgspec.Struct, frozen=True):
    """What is played of some changes.

    Args:
        changes: of the schedules. pace: of the ranks that a step is as long as.
    """

    changes: Changes
    pace: Pace


def _plays(run: Playable, asked: Changes) -> list[_Play]:
    """What is played of some changes: once, and with more micro-batches each stage alone, too."""
    if not run.pipelined:
        return [_Play(asked, pace_of(asked, run.straggler))]
    # Stages that are equally long still wait for each other. One that a straggler is left out of
    # plays alone: what the others would wait for then is not known.
    together = replace(asked, removed=asked.removed - {"skew"})
    pace = pace_of(together, run.straggler)
    plays = [_Play(together, pace)]
    if asked.micro_batches > 1:
        plays.append(_Play(replace(asked, removed=asked.removed | {"skew"}), pace))
    return plays


def check(run: Playable, asked: Changes) -> None:
    """Refuse changes of what a run has not.

    Raises:
        ImpossibleChange: nothing of that kind was played.
    """
    for schedule in run.base.schedules:
        changes.check(schedule, asked)
    if "straggler" in asked.removed and (run.straggler is None or len(run.played) < 2):
        raise ImpossibleChange("straggler: there is no rank that all others wait for")
    if asked.micro_batches != 1 and not run.pipelined:
        raise ImpossibleChange("micro-batches: the ranks that are played are no pipeline")


def now_ms(report: Report) -> float:
    """The step as it is: without a profiler where that is known.

    Raises:
        ImpossibleChange: there are no used iterations.
    """
    if report.quality.observer_effect is not None:
        return report.quality.observer_effect.step_ms
    step = mean_step_ms(report.ranks)
    if step is None:
        raise ImpossibleChange("no iteration of the run could be used")
    return step


def _waiting(schedule: RankSchedule, rank: Rank, now: float) -> float:
    """Part of the step in which the host of a rank waits for data, recorded or timed."""
    waited = float(schedule.tasks.data_wait.sum()) / schedule.iterations / 1e6
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
    spent = schedule.tasks.host.sum() + schedule.tasks.data_wait.sum()
    return float(spent) / schedule.iterations / 1e6


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
    the run is taken for a loader's, and a shorter one for the host's.
    """
    effect = report.quality.observer_effect
    waited, inferred = rank.summary.partition_ns["idle_data_wait"], rank.summary.host
    if not waited or inferred.data_wait_inferred_ns <= FIXED.mostly_inferred * waited:
        return False
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
    played = float(schedule.tasks.data_wait.sum()) / schedule.iterations / 1e6
    return _recorded_ms(rank, "idle_data_wait") - played >= LATE_LOADER * now


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


def _transfers(schedules: Sequence[RankSchedule], ranks: Sequence[Rank]) -> list[RankSchedule]:
    """Collectives without waiting: as long as on the rank where they were shortest."""
    found = list(schedules)
    recorded = [_in_collectives(p) for p in schedules]
    for group in {g for p in schedules for g in p.tasks.group.tolist()} - {ALONE}:
        at = [np.flatnonzero(p.tasks.group == group) for p in found]
        having = [rank for rank, places in enumerate(at) if len(places)]
        if len(having) < 2 or len({len(at[rank]) for rank in having}) > 1:
            continue
        shortest = np.min([found[rank].tasks.duration[at[rank]] for rank in having], axis=0)
        for rank in having:
            tasks = found[rank].tasks
            duration, tail = tasks.duration.copy(), tasks.tail.copy()
            duration[at[rank]] = shortest
            tail[at[rank]] = shortest + tasks.lag[at[rank]]
            found[rank] = replace(found[rank], tasks=replace(tasks, duration=duration, tail=tail))
    return [
        replace(p, waited=waiting_beside(rank, 1 - _in_collectives(p) / before)) if before else p
        for p, rank, before in zip(found, ranks, recorded, strict=True)
    ]


def waiting_beside(rank: Rank, waited: float) -> float:
    """Part of the time in which collectives run beside computation that is waiting for other ranks.

    Args:
        waited: of all their time.
    """
    times = rank.summary.communication
    if times is None or not times.overlapped_ns:
        return 0.0
    beside = waited * times.total_ns - (times.skew_exposed_ns or 0)
    return float(np.clip(beside / times.overlapped_ns, 0.0, 1.0))


def _in_collectives(schedule: RankSchedule) -> float:
    """How long all collectives of a rank last, ns."""
    return float(schedule.tasks.duration[schedule.tasks.collective].sum())


def _host_belief(report: Report) -> HostBelief:
    effect = report.quality.observer_effect
    recorded = effect is None or effect.other_conditions
    return AS_RECORDED if recorded else PROFILED_HOST[report.inputs[0].format]

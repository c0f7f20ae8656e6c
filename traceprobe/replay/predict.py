"""A step with changes: played with them, and without, on the tasks that a report holds."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
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
from traceprobe.replay.device_floor import device_floor_ns
from traceprobe.replay.loader_pace import with_loaders
from traceprobe.replay.pace import Pace, pace_of
from traceprobe.replay.scatter import noise_ms
from traceprobe.replay.scenario import Changes
from traceprobe.replay.simulate import simulate_ranks
from traceprobe.replay.stages import evened, with_more_micro_batches
from traceprobe.replay.tasks import RankSchedule, schedule_of
from traceprobe.replay.transfers import transfers
from traceprobe.verdict.allreduce import Links
from traceprobe.verdict.pipeline import is_pipeline, turns_ms

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
    waits = turns_ms(report.ranks) or 0.0
    now = now_ms(report)
    if waits > RULES_MARGIN * now:
        raise ImpossibleChange(
            "the GPUs of one process compute by turns, and the trace does not say what one needs "
            "of another; make the change, and `traceprobe compare` both runs"
        )
    fewest = min(replay.iterations for _, replay in ranks)
    ranks = [(rank, replay.last(fewest)) for rank, replay in ranks]
    schedules = [schedule_of(replay) for _, replay in ranks]
    recorded = [rank for rank, _ in ranks]
    schedules = transfers(with_loaders(schedules, recorded, report, now), recorded)
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
    floors = iter(_floors_ms(run, scenarios[:: len(doubts)]))
    found = []
    for asked, (plays, sizes, sizes_before, links) in zip(every, told, strict=True):
        steps, *apart = [[play.pace(next(ranks)) for _ in doubts] for play in plays]
        floor, *_ = [next(floors) for _ in plays]
        if apart:
            steps = [
                with_more_micro_batches(step, alone, asked.micro_batches)
                for step, alone in zip(steps, *apart, strict=True)
            ]
        predicted, *around = (run.now * step / run.base.step_ns for step in steps)
        predicted = max(predicted, floor)
        noise = hypot(noise_ms(run.report, asked, run.now), predicted * (run.base.factor - 1))
        if asked != Changes():
            noise += RULES_MARGIN * predicted
        low, high = min(predicted, *around) - noise, max(predicted, *around) + noise
        found.append(Prediction(predicted, max(low, 0.0), high, sizes, sizes_before, links))
    return found


def _floors_ms(run: Playable, scenarios: Sequence[Sequence[RankSchedule]]) -> list[float]:
    """What the kernels of each scenario take alone, ms; 0 where the calibration says otherwise.

    A step that is played too long is scaled down, as what is not recorded of it may be too much.
    The kernels are recorded. They take less without a profiler only where the GPU was faster, which
    shows in a step that is shorter than they are.
    """
    if run.base.factor >= 1 or device_floor_ns(run.base.schedules) > run.now * 1e6:
        return [0.0] * len(scenarios)
    return [device_floor_ns(schedules) / 1e6 for schedules in scenarios]


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


def _host_belief(report: Report) -> HostBelief:
    """What the host's factor may be.

    No host is slower without a profiler: a step that is longer without one has other reasons.
    """
    effect = report.quality.observer_effect
    if effect is None or effect.other_conditions:
        return AS_RECORDED
    profiled = PROFILED_HOST[report.inputs[0].format]
    return replace(profiled, most=1.0) if effect.ratio <= 1 else profiled

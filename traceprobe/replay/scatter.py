"""How much steps of a run differ, and so a step that is played from the next measurement."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from msgspec import UNSET

from traceprobe.model.taxonomy import OFF_DEVICE
from traceprobe.records.rank import Iteration
from traceprobe.records.report import Report
from traceprobe.records.run import straggler_of
from traceprobe.replay.calibrate import NINE_OF_TEN
from traceprobe.replay.pace import pace_of
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.student import student

CLASSES = {
    "data-wait": "idle_data_wait",
    "loader": "idle_data_wait",
    **{name: name for name in OFF_DEVICE},
}
"""Classes of the partition that a change of a name takes out, or shortens."""


def noise_ms(report: Report, asked: Changes, now: float) -> float:
    """How far on each side of what is played nine of ten such steps lie by chance, ms.

    The step as it is was timed without the profiler, where a recording says so; by what its blocks
    differ, so may the next one. What the changes leave of it is known from the traced steps alone:
    there the wait for data is left out if the timed steps tell the pace.

    Args:
        now: the step as it is, ms.
    """
    timed = _timed_ms(report)
    if len(timed) > 1 and asked == Changes():
        return _reach(timed) / fmean(timed) * now
    out = [CLASSES[name] for name in (*asked.removed, *asked.speedup) if name in CLASSES]
    return _reach(_paces_ms(report, asked, [*out, "idle_data_wait"] if len(timed) > 1 else out))


def _reach(means: Sequence[float]) -> float:
    """Half of the interval that holds the mean nine times of ten, by Student's distribution.

    Of few steps the scatter is known as little as the mean.
    """
    if len(means) < 2:
        return 0.0
    return student(NINE_OF_TEN, len(means) - 1) * stdev(means) / sqrt(len(means))


def _timed_ms(report: Report) -> list[float]:
    """Steps of the blocks without the profiler that the step as it is was timed in, ms."""
    recording, effect = report.quality.recording, report.quality.observer_effect
    if effect is None or effect.other_conditions or recording is UNSET:
        return []
    return [
        block.step_ms
        for block in recording.blocks
        if block.kept and not block.profiled and block.step_ms
    ]


def _paces_ms(report: Report, asked: Changes, out: Sequence[str]) -> list[float]:
    """The traced steps without some classes, ms.

    In each step the rank with most time of its own sets the pace, as in the replay. Only some
    ranks of many keep their iterations.
    """
    ranks = [
        {i.index: ms for i in rank.iterations if (ms := _own_ms(i, out)) is not None}
        for rank in report.ranks
        if rank.iterations
    ]
    common = set[int].intersection(*map(set, ranks)) if ranks else set[int]()
    numbers = [rank.rank for rank in report.ranks if rank.iterations]
    straggler = straggler_of(report.run)
    pace = pace_of(asked, numbers.index(straggler) if straggler in numbers else None)
    return [pace([rank[index] for rank in ranks]) for index in sorted(common)]


def _own_ms(iteration: Iteration, out: Sequence[str]) -> float | None:
    """A used iteration without waiting for other ranks and without some classes, ms."""
    start, end, partition = iteration.start_ns, iteration.end_ns, iteration.partition_ns
    if not iteration.used or start is None or end is None or partition is None:
        return None
    # Waiting for other ranks is a part of communication.
    waited = 0 if "communication" in out else iteration.skew_exposed_ns or 0
    return (end - start - waited - sum(partition[name] or 0 for name in out)) / 1e6

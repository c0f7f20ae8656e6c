"""The verdict of a run, and that of its regular iterations, where some are long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from traceprobe.options import Options
from traceprobe.pipeline import calibration
from traceprobe.pipeline.calibration import Timed
from traceprobe.pipeline.run_ranks import RunRanks
from traceprobe.pipeline.trace_part import TracePart
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.records.report import Quality, Verdict
from traceprobe.records.run import Run
from traceprobe.verdict.judge import judge
from traceprobe.verdict.outliers import with_outlier, with_recurring

Qualities = Callable[[Sequence[Rank], float | None], Quality]
"""The quality of the inputs by their ranks, and by the step without a profiler, ms."""


class Judgement(msgspec.Struct, frozen=True):
    """What is said of a run.

    Args:
        verdict: of the ranks. quality: of them.
        usual: the verdict of the regular iterations. usual_quality: of these.
        ranks: that the verdict is about: with long iterations, or without where these happened
            once and would decide it.
        long: the long iterations of each rank that has any.
    """

    verdict: Verdict
    quality: Quality
    usual: Verdict
    usual_quality: Quality
    ranks: list[Rank]
    long: list[LongIterations]


def judgement(
    parts: Sequence[TracePart],
    ranks: RunRanks,
    run: Run | None,
    timed: Timed,
    qualities: Qualities,
    profiled: frozenset[str],
    options: Options,
) -> Judgement:
    """Judge a run by all its used iterations, and by the regular ones.

    Args:
        run: what the ranks do together. profiled: what the profiler recorded.
    """

    def judged(records: Sequence[Rank], quality: Quality) -> Verdict:
        effect = quality.observer_effect
        step_ns = None if effect is None else effect.unprofiled_step_ms * 1e6
        return judge(
            *(records, run, quality, profiled, step_ns, options.thresholds),
            *(timed.doubt, timed.load_ms),
        )

    quality = qualities(ranks.every, timed.step_ms)
    verdict = judged(ranks.every, quality)
    long = [record.long for record in ranks.every if record.long is not UNSET]
    if not long:
        return Judgement(verdict, quality, verdict, quality, ranks.every, long)
    step_ms = calibration.regular_ms(parts, timed.step_ms, ranks.every, ranks.regular)
    usual_quality = qualities(ranks.regular, step_ms)
    usual = judged(ranks.regular, usual_quality)
    if usual.bound != verdict.bound and any(each.once for each in long):
        usual = with_outlier(usual, verdict, long, step_ms, timed.step_ms)
        return Judgement(usual, usual_quality, usual, usual_quality, ranks.regular, long)
    if usual.bound != verdict.bound:
        among = max(record.summary.iterations_used for record in ranks.every)
        verdict = with_recurring(verdict, usual, long, among)
    return Judgement(verdict, quality, usual, usual_quality, ranks.every, long)

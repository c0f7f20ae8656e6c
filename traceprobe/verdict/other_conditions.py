"""Whether steps without the profiler were timed when something else was different, too."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.verdict.compared_steps import (
    far_longer,
    fed_before,
    longest_unseen_wait,
    timed_waits_ns,
)
from traceprobe.verdict.drift import find_drift
from traceprobe.verdict.held_up import held_up_longer_ns
from traceprobe.verdict.step_times import per_step
from traceprobe.verdict.thresholds import Thresholds


def other_conditions(
    ranks: Sequence[Rank],
    unprofiled_ms: float | None,
    load_ms: float | None,
    thresholds: Thresholds,
) -> bool:
    """Whether a step is far longer without the profiler, and no loader explains that.

    A profiler makes no step shorter. Steps that wait for data may wait longer another time, where
    that was not timed: the pace of loaders varies. So do pauses and stalls of the host.

    Args:
        unprofiled_ms: None where it is not known.
        load_ms: time in which the loader makes the batches of a step, if known.
    """
    step_ms = mean_step_ms(ranks)
    if step_ms is None or unprofiled_ms is None:
        return False
    waits_ns = timed_waits_ns(ranks)
    if fed_before(ranks, load_ms, step_ms, unprofiled_ms) is not None:
        return False
    drift = None if waits_ns else find_drift(ranks, thresholds)
    times = [per_step(rank, drift) for rank in ranks]
    waited, whole = fmean(t.data_wait for t in times), fmean(t.total for t in times)
    if not waits_ns and waited >= thresholds.notable * whole:
        return False
    longer = longest_unseen_wait(ranks, waits_ns) + held_up_longer_ns(ranks)
    return far_longer(unprofiled_ms * 1e6, whole + longer)

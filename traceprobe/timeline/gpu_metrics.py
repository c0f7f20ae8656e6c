"""Means of sampled hardware counters over windows and over the time of phases.

A sample stands for a stretch of time of its own, so a mean is weighted by the part of
each stretch that lies in what is asked for. A kernel that is shorter than the sampling interval
shares its samples with its neighbours: what is shorter than a few intervals has no mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import Int64s
from traceprobe.model.taxonomy import BUSY, GPU_METRICS
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, intersect, length
from traceprobe.timeline.rank_collectives import summary_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_COVERED = 0.5
"""Part of the time that samples have to stand for."""
LEAST_SAMPLES = 4
"""Sampling intervals that a window, or a phase in each window, has to last."""
Means = Mapping[str, float | None]
"""Metric to its mean, a part of 1; None where too little is sampled."""


class MetricMeans(msgspec.Struct, frozen=True):
    """Means of the metrics of a device over the windows of its summary.

    Args:
        interval_ns: usual time between two samples.
        step: over all the windows. phases: over what each class of work takes of them, whatever
            runs beside it; those without any mean are left out.
        iterations: marker number to the means of the iteration; of used ones.
    """

    interval_ns: int
    step: Means
    phases: Mapping[str, Means]
    iterations: Mapping[int, Means]


def metric_means(account: DeviceTimeline, samples: pl.DataFrame) -> MetricMeans | None:
    """The means; None without a sample that counts.

    Args:
        samples: columns of GPU_SAMPLES, of the device, by metric and time.
    """
    if not len(samples):
        return None
    chosen = summary_windows(account)
    windows = Intervals(account.edges[chosen], account.edges[chosen + 1])
    interval_ns = int(np.median(samples["t1"].to_numpy() - samples["t0"].to_numpy()))
    series = {
        name: samples.filter(pl.col("metric") == number) for number, name in enumerate(GPU_METRICS)
    }
    least_ns = LEAST_SAMPLES * interval_ns

    def means(of: Intervals, least: int) -> Means:
        return {name: mean_within(rows, of, least) for name, rows in series.items()}

    step = means(windows, least_ns * len(chosen))
    if all(value is None for value in step.values()):
        return None
    by_class = {
        name: means(intersect(account.sets[name], windows), least_ns * len(chosen)) for name in BUSY
    }
    alone = {
        int(account.index[w]): means(
            Intervals(account.edges[w : w + 1], account.edges[w + 1 : w + 2]), least_ns
        )
        for w in np.flatnonzero(account.used)
    }
    return MetricMeans(
        interval_ns=interval_ns,
        step=step,
        phases={k: v for k, v in by_class.items() if any(x is not None for x in v.values())},
        iterations=alone,
    )


def mean_within(rows: pl.DataFrame, of: Intervals, least_ns: int) -> float | None:
    """Mean of one metric over a set of time, as a part of 1.

    Args:
        rows: its samples. least_ns: length below which the set has none.
    """
    whole = length(of)
    if not len(rows) or whole < max(least_ns, 1):
        return None
    t0, t1 = rows["t0"].to_numpy(), rows["t1"].to_numpy()
    sampled, percent = (t1 - t0).astype(np.float64), rows["percent"].to_numpy()
    covered = _within(t0, t1, sampled, of)
    if covered < LEAST_COVERED * whole:
        return None
    return _within(t0, t1, sampled * percent, of) / covered / 100


def _within(t0: Int64s, t1: Int64s, amount: NDArray[np.float64], of: Intervals) -> float:
    """The part of amounts, each spread evenly over its stretch, that lies in a set of time."""
    zero = int(t0[0])  # so that a float is exact to the nanosecond
    knots = np.stack([t0, t1], axis=1).ravel() - zero
    total = np.cumsum(amount)
    until = np.stack([total - amount, total], axis=1).ravel()
    ends, starts = (np.interp(x - zero, knots, until) for x in (of.t1, of.t0))
    return float((ends - starts).sum())

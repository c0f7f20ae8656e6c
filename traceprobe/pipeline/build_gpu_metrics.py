"""Sampled counters of a device, to the record of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from msgspec import UNSET, UnsetType

from traceprobe.records.gpu_metrics import (
    GpuMetrics,
    IterationUtilisations,
    PhaseUtilisations,
    Utilisations,
)
from traceprobe.timeline.gpu_metrics import metric_means

if TYPE_CHECKING:
    from traceprobe.model.events import Trace
    from traceprobe.timeline.device_timeline import DeviceTimeline
    from traceprobe.timeline.gpu_metrics import Means


def gpu_metrics(account: DeviceTimeline, trace: Trace) -> GpuMetrics | UnsetType:
    """The means of the counters; UNSET where none was sampled, or too seldom."""
    mine = (pl.col("pid") == account.process.pid) & (pl.col("device") == account.device)
    means = metric_means(account, trace.gpu_samples.filter(mine))
    if means is None:
        return UNSET
    return GpuMetrics(
        interval_us=round(means.interval_ns / 1e3, 3),
        step=Utilisations(**_rounded(means.step)),
        phases=[
            PhaseUtilisations(phase=name, **_rounded(each)) for name, each in means.phases.items()
        ],
        iterations=[
            IterationUtilisations(index=number, **_rounded(each))
            for number, each in means.iterations.items()
        ],
    )


def _rounded(means: Means) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in means.items()}

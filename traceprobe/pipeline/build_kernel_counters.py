"""What a profiler counted of kernels, to the record of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from msgspec import UNSET, UnsetType

from traceprobe.formatting import truncated
from traceprobe.model.codes import UNKNOWN
from traceprobe.pipeline.rank_summary import MAX_KERNEL
from traceprobe.records.kernel_counters import MOST_COUNTED, CountedKernel, KernelCounters

if TYPE_CHECKING:
    from traceprobe.model.events import Trace


def kernel_counters(trace: Trace) -> KernelCounters | UnsetType:
    """Sums by kernel and operator; UNSET where nothing was counted.

    A kernel without a value of a counter adds nothing to its sum.
    """
    rows = trace.kernel_counters
    if not len(rows):
        return UNSET
    metrics = rows["metric"].unique(maintain_order=True).to_list()
    of = ["name", "operator"]
    sums = rows.group_by(of).agg(
        pl.col("order").n_unique().alias("count"),
        pl.col("order").min().alias("first"),
        *(pl.col("value").filter(pl.col("metric") == m).sum().alias(str(m)) for m in metrics),
    )
    listed = sums.sort("first").head(MOST_COUNTED)

    def name(number: int) -> str | None:
        return None if number == UNKNOWN else truncated(trace.names[number], MAX_KERNEL)

    return KernelCounters(
        metrics=[trace.names[metric] for metric in metrics],
        count=rows["order"].n_unique(),
        kernels=[
            CountedKernel(
                kernel=name(row["name"]),
                operator=name(row["operator"]),
                count=row["count"],
                values=[row[str(metric)] for metric in metrics],
            )
            for row in listed.iter_rows(named=True)
        ],
    )

"""Kernels that were stopped while another process had the GPU.

Processes that share a GPU take turns on it in slices of one length. A kernel that is running when
a slice of another process comes takes longer by just that. So some kernels, others in each
iteration and whatever they are, take longer than the same ones do as a rule, and all by the same.
Kernels whose work depends on their data take longer by any amount, and are the same few in many
iterations; where iterations take turns, every second one has the same kernels longer.
"""

from __future__ import annotations

import msgspec
import polars as pl

from traceprobe.model.accounting import (
    FEWEST_SLICES,
    FEWEST_STEADY,
    SLICE_KERNELS,
    SLICE_NS,
    SLICES_ALIKE,
    SLICES_SHARE,
)
from traceprobe.model.codes import Ints, Kind

_KERNEL = ("name", "grid", "nth")
_QUARTILES = (0.25, 0.5, 0.75)


class TimeSlices(msgspec.Struct, frozen=True):
    """Slices of time that kernels of the used iterations were stopped for.

    Args:
        count: of kernels that were stopped. kinds: of them, by name. slice_ns: the median.
        extra_ns: all together.
    """

    count: int
    kinds: int
    slice_ns: int
    extra_ns: int


def find_time_slices(ops: pl.DataFrame, used: Ints) -> TimeSlices | None:
    """The slices among some iterations of one device, if there are any worth telling.

    Kernels are the same that have the same name, grid and place among their like in the iteration;
    what each takes as a rule is its median.

    Args:
        ops: GPU_OPS of the device by start, with the column `iteration`.
        used: numbers of the iterations.
    """
    if len(used) < FEWEST_STEADY:
        return None
    length = pl.col("t1") - pl.col("t0")
    kernels = (
        ops.select("kind", "name", "grid", "iteration", length=length)
        .filter((pl.col("kind") == int(Kind.KERNEL)) & pl.col("iteration").is_in(used.tolist()))
        .drop("kind")
    )
    long = kernels.filter(pl.col("length") >= SLICE_NS)["name"].unique()
    longer = (
        kernels.filter(pl.col("name").is_in(long.implode()))  # no other kernel holds a slice
        .with_columns(nth=pl.int_range(pl.len()).over("name", "grid", "iteration"))
        .with_columns(
            times=pl.len().over(_KERNEL),
            extra=pl.col("length") - pl.col("length").median().over(_KERNEL),
        )
        .filter((pl.col("times") == len(used)) & (pl.col("extra") >= SLICE_NS))
        .filter(2 * pl.len().over(_KERNEL) < len(used))
        .select("name", "iteration", "extra")
    )
    kinds = longer["name"].n_unique()
    hit = longer["iteration"].n_unique()
    if len(longer) < FEWEST_SLICES or kinds < SLICE_KERNELS or 2 * hit < len(used):
        return None
    low, middle, high = (float(longer["extra"].quantile(q, "linear") or 0) for q in _QUARTILES)
    total = int(longer["extra"].sum())
    if high > SLICES_ALIKE * low or total < SLICES_SHARE * int(kernels["length"].sum()):
        return None
    return TimeSlices(len(longer), kinds, round(middle), total)

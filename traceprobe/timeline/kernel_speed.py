"""How fast the GPU ran from iteration to iteration, by how long the same kernels take.

The clock falls when a GPU gets hot or shares its power, and a neighbour on the same host slows it
too. The kernels of an iteration are the same work each time, so many of them taking longer at once
is the GPU's doing and not the program's.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.accounting import (
    CLOCK_CHANGED,
    CLOCK_KERNELS,
    CLOCK_LONG_NS,
    CLOCK_SHARE,
    FEWEST_STEADY,
)
from traceprobe.model.codes import Bools, Ints, Kind
from traceprobe.timeline.intervals import measure_between, union

_KERNEL = ("name", "grid", "nth")
_MOST_PARTS = 3
"""Parts of a capture: a clock that falls and rises again. Iterations that take turns differ in
their work, not in their clock."""


class SpeedChange(msgspec.Struct, frozen=True):
    """A change of the GPU's speed within a capture.

    Args:
        slow: numbers of the iterations in which the same kernels take longer.
        ratio: by how much, between the medians of both parts. kernels: how many were compared.
        left_out: numbers of the iterations that do not count, the smaller part; empty where too
            few would be left.
    """

    slow: list[int]
    ratio: float
    kernels: int
    left_out: list[int]


def find_speed_change(ops: pl.DataFrame, used: Ints) -> SpeedChange | None:
    """The change among some iterations of one device, if there is one.

    An iteration is slower by the median, over the time of the kernels, of how much longer each of
    them takes than it does on average: half of all kernel time has to agree. Kernels are the same
    that have the same name, grid and place among their like in the iteration, and run beside
    communication in all iterations or in none: that slows them, and how much of it there is beside
    them depends on which rank is late.

    Args:
        ops: GPU_OPS of the device by start, with the column `iteration`.
        used: numbers of the iterations.
    """
    if len(used) < 2:
        return None
    length = pl.col("t1") - pl.col("t0")
    chosen = (pl.col("kind") == int(Kind.KERNEL)) & pl.col("iteration").is_in(used.tolist())
    kernels = (
        ops.select("kind", "name", "grid", "iteration", "t0", "t1", length=length)
        .filter(chosen)
        .drop("kind")
    )
    kernels = kernels.with_columns(beside=_beside(kernels, ops)).drop("t0", "t1")
    total = int(kernels["length"].sum())
    nth = pl.int_range(pl.len()).over("name", "grid", "iteration")
    kernels = kernels.filter(pl.col("length") >= CLOCK_LONG_NS).with_columns(nth=nth)
    always = (
        kernels.group_by(_KERNEL)
        .agg(
            times=pl.len(),
            usual=pl.col("length").log().mean(),
            weight=pl.col("length").mean(),
            alike=pl.col("beside").n_unique() == 1,
        )
        .filter((pl.col("times") == len(used)) & pl.col("alike"))
    )
    covered = float(always["weight"].sum()) * len(used)
    if len(always) < CLOCK_KERNELS or covered < CLOCK_SHARE * total:
        return None
    factors = _factors(kernels.join(always, on=_KERNEL), used)
    slow = factors >= CLOCK_CHANGED * factors.min()
    if not slow.any() or 1 + np.count_nonzero(slow[1:] != slow[:-1]) > _MOST_PARTS:
        return None
    fewer = slow if np.count_nonzero(slow) <= len(used) / 2 else ~slow
    enough = len(used) - np.count_nonzero(fewer) >= FEWEST_STEADY
    return SpeedChange(
        slow=used[slow].tolist(),
        ratio=float(np.median(factors[slow]) / np.median(factors[~slow])),
        kernels=len(always),
        left_out=used[fewer].tolist() if enough else [],
    )


def _beside(kernels: pl.DataFrame, ops: pl.DataFrame) -> Bools:
    """Which kernels run beside communication for more than half of their time."""
    sent = ops.select("kind", "t0", "t1").filter(pl.col("kind") == int(Kind.COMM))
    t0, t1 = kernels["t0"].to_numpy(), kernels["t1"].to_numpy()
    communication = union(sent["t0"].to_numpy(), sent["t1"].to_numpy())
    beside: Bools = 2 * measure_between(communication, t0, t1) > t1 - t0
    return beside


def _factors(kernels: pl.DataFrame, used: Ints) -> np.typing.NDArray[np.float64]:
    """How much longer than usual the kernels of each iteration take; medians weighted by time."""
    longer = kernels.with_columns(ratio=pl.col("length").log() - pl.col("usual")).sort("ratio")
    parts = longer.partition_by("iteration", as_dict=True)
    factors = []
    for number in used.tolist():
        weight = parts[(number,)]["weight"].to_numpy().cumsum()
        middle = np.searchsorted(weight, weight[-1] / 2)
        factors.append(parts[(number,)]["ratio"].to_numpy()[middle])
    return np.asarray(np.exp(factors), dtype=np.float64)

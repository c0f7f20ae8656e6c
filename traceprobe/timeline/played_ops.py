"""The operations of the iterations that can be played again."""

from __future__ import annotations

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.timeline.device_timeline import DeviceTimeline

MAX_ITERATIONS = 4
MAX_OPS = 400_000
"""Operations of the played iterations; with more there is no replay."""


def launched_ops(account: DeviceTimeline, chosen: Int64s) -> pl.DataFrame:
    """Operations of some iterations, and of the one before, in the order of their launches.

    The one before shows what the first of them waited for. `number` is the row of `account.ops`.
    """
    shown = [int(chosen[0]) - 1, *chosen.tolist()]
    return (
        account.ops.with_row_index("number")
        .filter(
            pl.col("iteration").is_in(shown)
            & (pl.col("thread") != UNKNOWN)
            & ~pl.col("thread").is_in(sorted(account.process.loaders))
        )
        .sort("launch_t0", "t0")
    )


def consecutive(account: DeviceTimeline) -> Int64s:
    """The last run of used iterations without one between that is not."""
    used = account.index[account.used]
    if not len(used):
        return used
    breaks = np.flatnonzero(np.diff(used) > 1)
    return used[breaks[-1] + 1 if len(breaks) else 0 :][-MAX_ITERATIONS:]

"""What several ranks say together: how long a collective takes, and how long ranks wait in it.

A collective ends on all ranks at once but begins when each arrives. Its transfer time is the
shortest duration among the ranks; what a rank spends in it beyond that is waiting for the slowest.
So only durations are compared, never clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceprobe.model import Int64s, Kind
from traceprobe.timeline.collectives import within_groups
from traceprobe.timeline.device import Account
from traceprobe.timeline.intervals import Intervals, per_window, subtract, union
from traceprobe.timeline.partition import compute


@dataclass(frozen=True)
class Collectives:
    """Matched collectives of a run.

    Args:
        count: collectives matched across all ranks, in iterations that every rank uses.
        steps: those iterations.
        transfer_ns: sum of the transfer times.
        wait_ns: per rank, time inside collectives beyond the transfer.
        exposed_wait: per rank and window of that rank, the part of the wait that nothing hides.
    """

    count: int
    steps: int
    transfer_ns: int
    wait_ns: list[int]
    exposed_wait: list[Int64s]


def match(accounts: Sequence[Account]) -> Collectives | None:
    """Match the collectives of several ranks by iteration and launch order; None if there are none.

    With several process groups the order counts within each, and only those of all ranks matter.
    Iterations in which the ranks launched different numbers of collectives are left out.
    """
    tables = within_groups([_collectives(a) for a in accounts])
    if len(tables) < 2 or not all(len(t) for t in tables):
        return None
    counts = [t.group_by("step").agg(len=_numbers()) for t in tables]
    common = counts[0]
    for other in counts[1:]:
        common = common.join(other, on=["step", "len"])
    steps = common["step"]
    if not len(steps):
        return None
    matched = [
        t.filter(pl.col("step").is_in(steps.implode())).sort("step", "order") for t in tables
    ]
    duration = np.stack([(t["t1"] - t["t0"]).to_numpy() for t in matched])
    transfer = duration.min(axis=0)
    return Collectives(
        count=duration.shape[1],
        steps=len(steps),
        transfer_ns=int(transfer.sum()),
        wait_ns=[int(row.sum()) for row in duration - transfer],
        exposed_wait=[
            per_window(subtract(_waits(t, transfer), compute(a.sets)), a.edges)
            for t, a in zip(matched, accounts, strict=True)
        ],
    )


def _numbers() -> pl.Expr:
    """How many of each group, as a text that can be compared."""
    return pl.col("group").sort().cast(pl.String).str.join(",")


def _waits(table: pl.DataFrame, transfer: Int64s) -> Intervals:
    return union(table["t0"].to_numpy(), table["t1"].to_numpy() - transfer)


def _collectives(account: Account) -> pl.DataFrame:
    """Collectives launched in used iterations: step label, order within it, t0, t1."""
    marker = account.process.marker
    if marker is None:
        return pl.DataFrame(
            schema={
                "step": pl.String,
                "iteration": pl.Int64,
                "order": pl.Int64,
                "group": pl.Int64,
                "t0": pl.Int64,
                "t1": pl.Int64,
            }
        )
    used = account.index[account.used]
    rows = account.ops.filter(
        (pl.col("kind") == int(Kind.COMM)) & pl.col("iteration").is_in(used.tolist())
    ).sort("launch_t0", "t0")
    labels = [marker.labels[k] for k in rows["iteration"].to_list()]
    return rows.select(
        pl.Series("step", labels, dtype=pl.String),
        "iteration",
        pl.int_range(pl.len()).over("iteration").cast(pl.Int64).alias("order"),
        "group",
        "t0",
        "t1",
    )

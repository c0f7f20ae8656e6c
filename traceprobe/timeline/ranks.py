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

from traceprobe.model import Int64s
from traceprobe.timeline import skew
from traceprobe.timeline.collectives import IS_COLLECTIVE, within_groups
from traceprobe.timeline.device import Account
from traceprobe.timeline.intervals import Intervals, per_window, subtract, union
from traceprobe.timeline.partition import compute

MOSTLY = 2 / 3
"""Part of the waiting for which a rank must have come last, to be the one that is waited for. Of
two ranks that take turns, each is last for half of it."""


@dataclass(frozen=True)
class Collectives:
    """Matched collectives of a run.

    Args:
        count: collectives matched across all ranks, in iterations that every rank uses.
        steps: those iterations.
        transfer_ns: sum of the transfer times.
        wait_ns: per rank, time inside collectives beyond the transfer.
        late_ns: per rank, what all ranks wait in the collectives to which it came last.
        causes_ns: per rank, what the others wait for it and nothing hides, by what it had more of
            than they; see `skew.causes`.
        exposed_wait: per rank and window of that rank, the part of the wait that nothing hides.
    """

    count: int
    steps: int
    transfer_ns: int
    wait_ns: list[int]
    late_ns: list[float]
    causes_ns: list[dict[str, float]]
    exposed_wait: list[Int64s]

    @property
    def mostly_last(self) -> tuple[int | None, str]:
        """The rank that came last for most of the waiting, if one did, and its largest cause."""
        slowest = int(np.argmax(self.late_ns))
        cause = self.causes_ns[slowest]
        found = self.late_ns[slowest] >= MOSTLY * sum(self.late_ns)
        return slowest if found else None, max(cause, key=lambda name: cause[name])

    @property
    def causes(self) -> dict[str, float] | None:
        """Parts of the waiting by cause, over all late ranks; they sum to 1. None without any."""
        total = sum(sum(mine.values()) for mine in self.causes_ns)
        if not total:
            return None
        parts = {
            name: round(sum(mine[name] for mine in self.causes_ns) / total, 6)
            for name in skew.EXPLAINS
        }
        return {**parts, skew.UNEXPLAINED: round(max(1 - sum(parts.values()), 0.0), 6)}


def match(accounts: Sequence[Account]) -> Collectives | None:
    """Match the collectives of several ranks by iteration and launch order; None if there are none.

    Where the trace tells process groups or operations apart, the order counts within each, and only
    those of all ranks matter. Copies are no collectives.
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
    matched = _in_time([t.filter(pl.col("step").is_in(steps.implode())) for t in tables])
    arrivals = _arrivals(matched)
    transfer = arrivals.transfer
    return Collectives(
        count=len(transfer),
        steps=len(steps),
        transfer_ns=int(transfer.sum()),
        wait_ns=[int(row.sum()) for row in arrivals.wait],
        late_ns=[float(ns) for ns in (arrivals.last * arrivals.wait.sum(axis=0)).sum(axis=1)],
        causes_ns=skew.causes(accounts, arrivals),
        exposed_wait=[
            per_window(subtract(_waits(t, transfer), compute(a.sets)), a.edges)
            for t, a in zip(matched, accounts, strict=True)
        ],
    )


def _numbers() -> pl.Expr:
    """How many of each group, as a text that can be compared."""
    return pl.col("group").sort().cast(pl.String).str.join(",")


def _in_time(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The same collective in the same row, in the order in which they end on the first rank."""
    alike = [t.sort("step", "order", "iteration") for t in tables]
    time = alike[0].select(pl.arg_sort_by("iteration", "t1")).to_series()
    return [t[time] for t in alike]


def _arrivals(matched: Sequence[pl.DataFrame]) -> skew.Arrivals:
    column = {c: np.stack([t[c].to_numpy() for t in matched]) for c in ("t0", "t1", "begin")}
    # Before the first collective of a capture nothing aligns the ranks but their windows.
    aligned = np.stack([t["follows"].to_numpy() for t in matched]).all(axis=0)
    window = np.stack([t["window"].to_numpy() for t in matched])
    iteration = matched[0]["iteration"].to_numpy()
    return skew.Arrivals(
        begin=np.where(aligned, column["begin"], window),
        t0=column["t0"],
        t1=column["t1"],
        ends_step=np.concatenate([iteration[1:] != iteration[:-1], [True]]),
    )


def _waits(table: pl.DataFrame, transfer: Int64s) -> Intervals:
    return union(table["t0"].to_numpy(), table["t1"].to_numpy() - transfer)


_TABLE = {
    "step": pl.String,
    "iteration": pl.Int64,
    "order": pl.Int64,
    "group": pl.Int64,
    "operation": pl.Int64,
    "group_size": pl.Int64,
    "t0": pl.Int64,
    "t1": pl.Int64,
    "begin": pl.Int64,  # end of the one before it in its group; 0 where there is none
    "follows": pl.Boolean,  # whether there is one
    "window": pl.Int64,  # start of the iteration's window
}


def _collectives(account: Account) -> pl.DataFrame:
    """Collectives launched in used iterations, as `_TABLE`; `order` counts within an iteration."""
    marker = account.process.marker
    if marker is None:
        return pl.DataFrame(schema=_TABLE)
    used = account.index[account.used]
    rows = (
        account.ops.filter(IS_COLLECTIVE)
        .sort("launch_t0", "t0")
        .with_columns(
            begin=pl.col("t1").shift(1, fill_value=0).over("group"),
            follows=pl.int_range(pl.len()).over("group") > 0,
        )
        .filter(pl.col("iteration").is_in(used.tolist()))
    )
    window = account.edges[np.searchsorted(account.index, rows["iteration"].to_numpy())]
    return rows.select(
        pl.Series("step", [marker.labels[k] for k in rows["iteration"].to_list()], pl.String),
        "iteration",
        pl.int_range(pl.len()).over("iteration").cast(pl.Int64).alias("order"),
        *("group", "operation", "group_size"),
        "t0",
        "t1",
        "begin",
        "follows",
        pl.Series("window", window, pl.Int64),
    )

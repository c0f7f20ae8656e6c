"""The collectives of a rank by operation and size, and what of each is transfer.

A collective is the same on two ranks if it is the n-th that its process group launched in the same
iteration. Its transfer time is its shortest duration among the ranks, what a rank spends in it
beyond that is waiting. Groups launch in an order of their own on each rank, so the order counts
within a group wherever a run has several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from traceprobe.model.events import UNKNOWN, Int64s, Kind, Operation
from traceprobe.timeline.device import Account
from traceprobe.timeline.footprint import Footprint, chosen
from traceprobe.timeline.intervals import Intervals, intersect, per_window, union
from traceprobe.timeline.partition import compute

KEY = ("operation", "bytes", "group_size")
"""What collectives have in common that are reported together."""
_OPERATION_BIT = 57
"""Where a number of a group leaves room for that of an operation."""


@dataclass(frozen=True)
class Group:
    """Collectives of one operation, message size and number of ranks; sums over its launches.

    Args:
        bytes, group_size: None where the trace does not say.
        busy_ns: union of their time in the summarised windows; `exposed_ns` of it without a kernel
            of computation, `overlapped_ns` beside one. These two add up to it.
        duration_ns: sum of the durations of the `count` collectives.
        matched: those of them found on other ranks too; `transfer_ns` and `skew_ns` are sums over
            these, None where there are none, as long as other ranks are not known.
        complete: every rank of the group was there for every match.
    """

    operation: Operation
    bytes: int | None
    group_size: int | None
    count: int
    busy_ns: int
    exposed_ns: int
    overlapped_ns: int
    duration_ns: int
    matched: int = 0
    transfer_ns: int | None = None
    skew_ns: int | None = None
    complete: bool = False

    def rate(self, total_ns: int | None, count: int) -> float | None:
        """Bytes of `count` messages per ns of `total_ns`, which is GB/s; None where unknown."""
        return None if self.bytes is None or not total_ns else self.bytes * count / total_ns


@dataclass(frozen=True)
class Matched:
    """Collectives of one rank that other ranks have too.

    Args:
        row: index in the collectives of its footprint.
        transfer_ns: shortest duration among the ranks.
        ranks: how many ranks have it.
    """

    row: Int64s
    transfer_ns: Int64s
    ranks: Int64s


def bus_factor(operation: Operation, ranks: int | None) -> float | None:
    """Bus bandwidth as a multiple of size over time, as nccl-tests defines it.

    None where it has no definition, or the number of ranks is not known.
    """
    if ranks is None or ranks < 2:
        return None
    if operation == Operation.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if operation in (
        *(Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL),
        *(Operation.GATHER, Operation.SCATTER),
    ):
        return (ranks - 1) / ranks
    if operation in (Operation.BROADCAST, Operation.REDUCE, Operation.SEND_RECV):
        return 1.0
    return None


def sequences(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Put into `group` what runs in the same order on every rank that takes part in it.

    That is an operation of a process group, as far as the trace tells these of every collective:
    ranks may launch groups, or operations of groups without a name, in turns of their own.
    Messages between two ranks of a larger group are left out, since it is not recorded which of
    them belong together.

    Args:
        tables: per rank, with `group`, `operation` and `group_size`.
    """
    every = pl.concat([t.select("group", "operation") for t in tables])
    grouped = (every["group"] != UNKNOWN).all()
    named = (every["operation"] != int(Operation.OTHER)).all()
    group = pl.col("group") if grouped else pl.lit(UNKNOWN, pl.Int64)
    number = group.xor(pl.col("operation") * (1 << _OPERATION_BIT)) if named else group
    keyed = [t.with_columns(group=number) for t in tables]
    ranks = pl.concat([t.select(pl.col("group").unique()) for t in keyed]).group_by("group").len()
    crowded = ranks.filter(pl.col("len") > 2)["group"].implode()
    one_to_one = pl.col("operation") == int(Operation.SEND_RECV)
    many = (pl.col("group_size") > 2) | pl.col("group").is_in(crowded)
    return [t.filter(~(one_to_one & many)) for t in keyed]


def within_groups(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Renumber `order` so that equal numbers of a step mean the same collective on every rank.

    Args:
        tables: per rank, with `iteration`, `order` (of launches in an iteration), `group`,
            `operation` and `group_size`.

    Returns:
        The tables with the `group` of `sequences`. With several of these only those that every
        rank takes part in, ordered one by one.
    """
    tables = sequences(tables)
    held = [set(t["group"].unique().to_list()) for t in tables]
    if len(set().union(*held) - {UNKNOWN}) < 2:
        return [t.with_columns(group=pl.lit(UNKNOWN, pl.Int64)) for t in tables]
    shared = sorted(set.intersection(*held))
    return [
        t.filter(pl.col("group").is_in(shared))
        .sort("iteration", "group", "order")
        .with_columns(order=pl.int_range(pl.len()).over("iteration").cast(pl.Int64))
        for t in tables
    ]


def transfers(footprints: Sequence[Footprint]) -> list[Matched | None]:
    """Match the collectives of several ranks, each process group among the ranks that it has.

    A step counts for a group where all of its ranks launched the same number in it.

    Returns:
        Per rank, its matched collectives; None for one rank alone.
    """
    if len(footprints) < 2:
        return [None] * len(footprints)
    tables = [_launched(f.collectives, rank) for rank, f in enumerate(footprints)]
    every = pl.concat(sequences(tables))
    known = set(every["group"].unique().to_list()) - {UNKNOWN}
    if len(known) < 2:
        every = every.with_columns(group=pl.lit(UNKNOWN, pl.Int64), holders=pl.lit(len(tables)))
    else:
        every = every.with_columns(holders=pl.col("rank").n_unique().over("group"))
    every = (
        every.with_columns(order=pl.int_range(pl.len()).over("rank", "step", "group"))
        .with_columns(
            transfer=pl.col("duration").min().over("step", "group", "order"),
            ranks=pl.len().over("step", "group", "order").cast(pl.Int64),
        )
        .with_columns(fewest=pl.col("ranks").min().over("step", "group"))
        .filter((pl.col("fewest") == pl.col("holders")) & (pl.col("holders") > 1))
    )
    found = every.partition_by("rank", as_dict=True, maintain_order=True)
    return [
        Matched(*(rows[c].to_numpy() for c in ("row", "transfer", "ranks")))
        for rows in (found.get((rank,), every.clear()) for rank in range(len(footprints)))
    ]


def _launched(table: pl.DataFrame, rank: int) -> pl.DataFrame:
    return table.with_row_index("row").select(
        pl.col("row").cast(pl.Int64),
        *("step", "group", "operation", "group_size"),
        duration=pl.col("t1") - pl.col("t0"),
        rank=pl.lit(rank),
    )


def groups(account: Account) -> list[Group]:
    """The collectives of one rank by operation, bytes and group size; most busy time first.

    Counts and durations are of the collectives launched in the used iterations, of all without
    such; busy times are those of the windows of the summary, as in the partition. What takes other
    ranks to know is left open: `completed` adds it.
    """
    used = account.index[account.used].tolist()
    low, high = int(account.edges[0]), int(account.edges[-1])
    counted = pl.col("iteration").is_in(used) if used else pl.col("t0").is_between(low, high)
    rows = account.ops.with_columns(counted=counted).filter(pl.col("kind") == int(Kind.COMM))
    computing = compute(account.sets)
    found = []
    for part in rows.partition_by(KEY, maintain_order=True):
        group = _group(part, account, computing)
        if group.count or group.busy_ns:
            found.append(group)
    return sorted(
        found, key=lambda g: (-g.busy_ns, int(g.operation), g.bytes or 0, g.group_size or 0)
    )


def _group(part: pl.DataFrame, account: Account, computing: Intervals) -> Group:
    mine = union(part["t0"].to_numpy(), part["t1"].to_numpy())
    windows = chosen(account)
    busy = per_window(mine, account.edges)[windows]
    hidden = per_window(intersect(mine, computing), account.edges)[windows]
    inside = part.filter(pl.col("counted"))
    operation, size, members = part.select(KEY).row(0)
    return Group(
        operation=Operation(operation),
        bytes=None if size == UNKNOWN else size,
        group_size=None if members == UNKNOWN else members,
        count=len(inside),
        busy_ns=int(busy.sum()),
        exposed_ns=int((busy - hidden).sum()),
        overlapped_ns=int(hidden.sum()),
        duration_ns=int((inside["t1"] - inside["t0"]).sum()),
    )


def completed(found: Sequence[Group], table: pl.DataFrame, matched: Matched | None) -> list[Group]:
    """The groups of a rank with what its matched collectives add.

    Args:
        table: the collectives of the rank's footprint, whose rows `matched` counts.
    """
    if matched is None:
        return list(found)
    rows = table[matched.row].with_columns(
        transfer=pl.Series(matched.transfer_ns), ranks=pl.Series(matched.ranks)
    )
    sums = {
        tuple(key): (count, duration, transfer, fewest)
        for *key, count, duration, transfer, fewest in rows.group_by(KEY)
        .agg(
            pl.len(),
            (pl.col("t1") - pl.col("t0")).sum(),
            pl.col("transfer").sum(),
            pl.col("ranks").min(),
        )
        .rows()
    }
    return [_completed(group, sums) for group in found]


def _completed(group: Group, sums: Mapping[tuple[int, ...], tuple[int, int, int, int]]) -> Group:
    members = UNKNOWN if group.group_size is None else group.group_size
    key = (int(group.operation), UNKNOWN if group.bytes is None else group.bytes, members)
    if key not in sums:
        return group
    count, duration, transfer, fewest = sums[key]
    return replace(
        group,
        matched=count,
        transfer_ns=transfer,
        skew_ns=duration - transfer,
        complete=members != UNKNOWN and fewest >= members,
    )

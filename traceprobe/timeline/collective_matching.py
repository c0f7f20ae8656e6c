"""Which collectives of several ranks are the same one.

A collective is the same on two ranks if it is the n-th that its process group launched in the same
iteration. Groups launch in an order of their own on each rank, so the order counts within a group
wherever a run has several.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Int64s, Operation
from traceprobe.timeline.rank_collectives import RankCollectives

_OPERATION_BIT = 57
"""Where a number of a group leaves room for that of an operation."""


class MatchedCollectives(msgspec.Struct, frozen=True):
    """Collectives of one rank that other ranks have too.

    Args:
        row: index in `RankCollectives.collectives`.
        transfer_ns: shortest duration among the ranks.
        ranks: how many ranks have it.
        number: the same for the same collective on all ranks.
    """

    row: Int64s
    transfer_ns: Int64s
    ranks: Int64s
    number: Int64s


def sequences(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The tables with `group` numbering what runs in one order on every rank that takes part.

    That is an operation of a process group, as far as the trace tells these of every collective:
    ranks may launch groups, or operations of groups without a name, in turns of their own.
    Messages between two ranks of a larger group are left out, since it is not recorded which of
    them belong together.

    Args:
        tables: per rank, with `group`, `operation` and `group_size`.
    """
    every = pl.concat(
        t.select("group", "operation", rank=pl.lit(rank)) for rank, t in enumerate(tables)
    )
    numbered, kept = _rules(every)
    return [t.with_columns(group=numbered).filter(kept) for t in tables]


def _rules(every: pl.DataFrame) -> tuple[pl.Expr, pl.Expr]:
    """What `sequences` takes for `group`, and then which rows it keeps.

    Args:
        every: all rows, with `rank`, `group` and `operation`.
    """
    grouped = (every["group"] != UNKNOWN).all()
    named = (every["operation"] != int(Operation.OTHER)).all()
    group = pl.col("group") if grouped else pl.lit(UNKNOWN, pl.Int64)
    number = group.xor(pl.col("operation") * (1 << _OPERATION_BIT)) if named else group
    ranks = every.select("rank", group=number).unique().group_by("group").len()
    crowded = ranks.filter(pl.col("len") > 2)["group"].implode()
    one_to_one = pl.col("operation") == int(Operation.SEND_RECV)
    many = (pl.col("group_size") > 2) | pl.col("group").is_in(crowded)
    return number, ~(one_to_one & many)


def within_groups(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The tables with `order` renumbered: equal numbers of a step are the same collective.

    Args:
        tables: per rank, with `iteration`, `order` (of launches in an iteration), `group`,
            `operation` and `group_size`.

    Returns:
        The tables with the `group` of `sequences`. With several of these only those that every
        rank takes part in, ordered one by one.
    """
    tables = sequences(tables)
    groups_of_ranks = [set(t["group"].unique().to_list()) for t in tables]
    if len(set().union(*groups_of_ranks) - {UNKNOWN}) < 2:
        return [t.with_columns(group=pl.lit(UNKNOWN, pl.Int64)) for t in tables]
    shared = sorted(set.intersection(*groups_of_ranks))
    return [
        t.filter(pl.col("group").is_in(shared))
        .sort("iteration", "group", "order")
        .with_columns(order=pl.int_range(pl.len()).over("iteration").cast(pl.Int64))
        for t in tables
    ]


def match_transfers(ranks: Sequence[RankCollectives]) -> list[MatchedCollectives | None]:
    """Collectives that several ranks have, each process group among the ranks that it has.

    A step counts for a group where all of its ranks launched the same number in it. Messages
    between two ranks are matched in the order of their ends, all else in that of the launches.

    Returns:
        Per rank, its matched collectives; None for one rank alone.
    """
    if len(ranks) < 2:
        return [None] * len(ranks)
    # In one table: a thousand small ones take many times the memory of their rows.
    every = _launched(ranks)
    numbered, kept = _rules(every)
    every = every.with_columns(group=numbered).filter(kept)
    known = set(every["group"].unique().to_list()) - {UNKNOWN}
    if len(known) < 2:
        every = every.with_columns(group=pl.lit(UNKNOWN, pl.Int64), holders=pl.lit(len(ranks)))
    else:
        every = every.with_columns(holders=pl.col("rank").n_unique().over("group"))
    # Stages send and receive in an order of their own, but a message ends on both at once.
    message = pl.col("operation") == int(Operation.SEND_RECV)
    every = (
        every.sort("rank", pl.when(message).then("t1").otherwise(None), "row", nulls_last=True)
        .with_columns(order=pl.int_range(pl.len()).over("rank", "step", "group"))
        .with_columns(
            transfer=pl.col("duration").min().over("step", "group", "order"),
            ranks=pl.len().over("step", "group", "order").cast(pl.Int64),
            number=pl.struct("step", "group", "order").rank("dense").cast(pl.Int64) - 1,
        )
        .with_columns(fewest=pl.col("ranks").min().over("step", "group"))
        .filter((pl.col("fewest") == pl.col("holders")) & (pl.col("holders") > 1))
    )
    by_rank = every.partition_by("rank", as_dict=True, maintain_order=True)
    return [
        MatchedCollectives(*(rows[c].to_numpy() for c in ("row", "transfer", "ranks", "number")))
        for rows in (by_rank.get((rank,), every.clear()) for rank in range(len(ranks)))
    ]


def _launched(ranks: Sequence[RankCollectives]) -> pl.DataFrame:
    return pl.concat(
        f.collectives.select("step", "group", "operation", "group_size", "t0", "t1") for f in ranks
    ).select(
        pl.Series("row", np.concatenate([np.arange(len(f.collectives)) for f in ranks])),
        *("step", "group", "operation", "group_size", "t1"),
        duration=pl.col("t1") - pl.col("t0"),
        rank=pl.Series(np.repeat(np.arange(len(ranks)), [len(f.collectives) for f in ranks])),
    )

"""Waiting inside messages from one rank to another, as the stages of a pipeline send them.

A stage has nothing to do before the first micro-batch reaches it, nor between its last forward and
its first backward pass: it waits in a receive. All stages take turns in that, and nobody is late.
What one stage waits more than the one that waits least is no such turn: it is waiting for a slower
stage, that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from traceprobe.model.codes import Int64s, Operation
from traceprobe.timeline.collective_matching import MatchedCollectives
from traceprobe.timeline.intervals import per_window, subtract, union
from traceprobe.timeline.rank_collectives import EXPLAINS, RankCollectives
from traceprobe.timeline.skew import Floats, divide, excess

IS_MESSAGE = pl.col("operation") == int(Operation.SEND_RECV)


class StageWaits(msgspec.Struct, frozen=True):
    """Messages between two ranks; per rank, and per window of that rank.

    Args:
        matched: messages found on both of their ranks.
        transfer_ns: per rank, sum of their transfer times.
        exposed: per rank and window, waiting in them that no computation hides.
        one_sided: per rank and window, the part of it by which the rank waits more than others do.
        bottleneck: the rank that waits least, where others wait more.
    """

    matched: int
    transfer_ns: list[int]
    exposed: list[Int64s]
    one_sided: list[Int64s]
    bottleneck: int | None

    @property
    def late_ns(self) -> list[float]:
        """Per rank, what the others wait for it beyond their turns."""
        late = [0.0] * len(self.exposed)
        if self.bottleneck is not None:
            late[self.bottleneck] = float(sum(int(ns.sum()) for ns in self.one_sided))
        return late


def stage_waits(
    ranks: Sequence[RankCollectives], matched: Sequence[MatchedCollectives | None]
) -> StageWaits | None:
    """Waiting of all ranks in messages between two of them; None where there are none.

    The transfer of a message is its shorter duration on its two ranks. Where it is not known which
    belong together it is the shortest of the same size on the same rank.

    Args:
        matched: per rank, as `match_transfers` finds them.
    """
    tables = [_messages(rank, found) for rank, found in zip(ranks, matched, strict=True)]
    if not any(len(t) for t in tables):
        return None
    exposed = [_exposed(t, rank) for t, rank in zip(tables, ranks, strict=True)]
    waits = np.array([ns[r.chosen].sum() for ns, r in zip(exposed, ranks, strict=True)], np.float64)
    steps = np.array([_steps(rank) for rank in ranks])
    a_step = waits / steps
    turns = len(ranks) > 1 and all(len(t) for t in tables)
    more = (a_step - a_step.min()) / np.maximum(a_step, 1) if turns else np.zeros(len(ranks))
    return StageWaits(
        matched=sum(int(t["paired"].sum()) for t in tables) // 2,
        transfer_ns=[int(t["transfer"].sum()) for t in tables],
        exposed=exposed,
        one_sided=[np.rint(ns * m).astype(np.int64) for ns, m in zip(exposed, more, strict=True)],
        bottleneck=int(a_step.argmin()) if more.any() else None,
    )


def causes(ranks: Sequence[RankCollectives], waits: StageWaits) -> list[dict[str, float]]:
    """What the others wait for the bottleneck, by what it spends more time on than they; ns."""
    steps = np.array([[_steps(rank)] for rank in ranks])
    blame = np.array(waits.late_ns)[:, None] / steps
    parts = divide(blame, {name: excess(_spent(ranks, name)) for name in EXPLAINS})
    return [
        {name: ns * int(n) for name, ns in part.items()}
        for part, n in zip(parts, steps[:, 0], strict=True)
    ]


def _messages(rank: RankCollectives, matched: MatchedCollectives | None) -> pl.DataFrame:
    """The messages of a rank with their `transfer`, and whether they are `paired`."""
    lasts = pl.col("t1") - pl.col("t0")
    table = rank.collectives.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    table = table.filter(IS_MESSAGE).with_columns(shortest=lasts.min().over("bytes"))
    rows, transfer = ([], []) if matched is None else (matched.row, matched.transfer_ns)
    pairs = pl.DataFrame(
        {"row": rows, "pair": transfer}, schema={"row": pl.Int64, "pair": pl.Int64}
    )
    return table.join(pairs, on="row", how="left", maintain_order="left").select(
        *("t0", "t1"),
        transfer=pl.coalesce("pair", "shortest"),
        paired=pl.col("pair").is_not_null(),
    )


def _exposed(table: pl.DataFrame, rank: RankCollectives) -> Int64s:
    waiting = union(table["t0"].to_numpy(), (table["t1"] - table["transfer"]).to_numpy())
    return per_window(subtract(waiting, rank.computing), rank.edges)


def _spent(ranks: Sequence[RankCollectives], name: str) -> Floats:
    """Time that each rank spends on a group of classes in an average step; (rank, 1)."""
    totals = []
    for rank in ranks:
        rows = rank.collectives
        during = int(rows[f"{name}_end"].max() or 0) - int(rows[f"{name}_window"].min() or 0)  # type: ignore[arg-type]
        totals.append(during / _steps(rank))
    return np.array(totals)[:, None]


def _steps(rank: RankCollectives) -> int:
    return max(rank.collectives["iteration"].n_unique(), 1)

"""What several ranks say together: how long a collective takes, and how long ranks wait in it.

A collective ends on all ranks at once but begins when each arrives. Its transfer time is the
shortest duration among the ranks; what a rank spends in it beyond that is waiting for the slowest.
So only durations are compared, never clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.accounting import FEW_LATE, STRAGGLER
from traceprobe.model.codes import UNKNOWN, Int64s
from traceprobe.timeline import skew
from traceprobe.timeline.collective_matching import sequences, within_groups
from traceprobe.timeline.intervals import Intervals, length, merge, per_window, subtract, union
from traceprobe.timeline.rank_collectives import EXPLAINS, RankCollectives
from traceprobe.timeline.stage_waits import IS_MESSAGE, StageWaits, causes


class CollectiveWaits(msgspec.Struct, frozen=True):
    """Matched collectives of a run.

    Args:
        count: collectives matched across all ranks, in iterations that every rank uses, and
            messages between two ranks matched on both.
        steps: those iterations.
        transfer_ns: the transfer times, on the rank where they overlap most.
        wait_ns: per rank, time inside collectives beyond the transfer. Of collectives that are
            under way at once, as those of gloo's threads, it is waiting while none transfers.
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
        found = self.late_ns[slowest] >= STRAGGLER * sum(self.late_ns)
        return slowest if found else None, max(cause, key=lambda name: cause[name])

    def waited_for(self, rank: int) -> float:
        """What the other ranks wait for one, their mean, ns in all steps.

        Collectives under way at once count for several in `late_ns`, and once in `wait_ns`.
        """
        total = sum(self.late_ns)
        others = len(self.wait_ns) - 1
        return sum(self.wait_ns) * self.late_ns[rank] / total / others if total and others else 0.0

    @property
    def mostly_last_together(self) -> list[int]:
        """The few ranks that came last for most of the waiting; none where many take turns."""
        order = np.argsort(-np.array(self.late_ns), kind="stable")
        reached = np.cumsum(np.array(self.late_ns)[order]) >= STRAGGLER * sum(self.late_ns)
        few = order[: int(np.argmax(reached)) + 1]
        waits = sum(self.late_ns) > 0 and len(few) <= FEW_LATE * len(order)
        return sorted(few.tolist()) if waits else []

    @property
    def causes(self) -> dict[str, float] | None:
        """Parts of the waiting by cause, over all late ranks; they sum to 1. None without any."""
        total = sum(sum(of_rank.values()) for of_rank in self.causes_ns)
        if not total:
            return None
        parts = {
            name: round(sum(of_rank[name] for of_rank in self.causes_ns) / total, 6)
            for name in EXPLAINS
        }
        return {**parts, skew.UNEXPLAINED: round(max(1 - sum(parts.values()), 0.0), 6)}


def collective_waits(
    ranks: Sequence[RankCollectives], stages: StageWaits | None = None
) -> CollectiveWaits | None:
    """Waiting in the collectives that all ranks have, matched by iteration and launch order.

    None where there are none, nor messages between two ranks.

    Where the trace tells process groups or operations apart, the order counts within each, and only
    those of all ranks matter; where there are none, those of each group do among its ranks. Copies
    are no collectives.
    Iterations in which the ranks launched different numbers of collectives are left out.

    Args:
        stages: waiting in messages between two ranks, of which all take their turns in some. Only
            what a rank waits beyond that is waiting for a slower one.
    """
    if len(ranks) < 2:
        return None
    found = _of_all_ranks(ranks) or _of_groups(ranks)
    return found if stages is None else _with_stages(found, ranks, stages)


def _of_all_ranks(ranks: Sequence[RankCollectives]) -> CollectiveWaits | None:
    tables = within_groups([f.collectives.filter(~IS_MESSAGE) for f in ranks])
    if not all(len(t) for t in tables):
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
    transfers = [union(t1 - transfer, t1) for t1 in arrivals.t1]
    waits = [union(t0, t1 - transfer) for t0, t1 in zip(arrivals.t0, arrivals.t1, strict=True)]
    return CollectiveWaits(
        count=len(transfer),
        steps=len(steps),
        transfer_ns=min(map(length, transfers)),
        wait_ns=[length(subtract(a, b)) for a, b in zip(waits, transfers, strict=True)],
        late_ns=[float(ns) for ns in (arrivals.last * arrivals.wait.sum(axis=0)).sum(axis=1)],
        causes_ns=skew.wait_causes([f.computing for f in ranks], arrivals),
        exposed_wait=[
            per_window(subtract(merge(a, alone), f.computing), f.edges)
            for a, alone, f in zip(
                waits, _waits_alone(tables, matched[0], transfer), ranks, strict=True
            )
        ],
    )


def _waits_alone(
    tables: Sequence[pl.DataFrame], matched: pl.DataFrame, transfer: Int64s
) -> list[Intervals]:
    """Waiting in the collectives of iterations that some rank leaves out, or did not record.

    What a collective transfers it does in each iteration. How long it takes for that is known of
    those that are matched.

    Args:
        tables: of each rank. matched: those of the first rank that all have. transfer: of these.
    """
    same = ("group", "order", "operation", "bytes")
    usual = (
        matched.select(*same, transfer=transfer)
        .group_by(same)
        .agg(pl.col("transfer").median().cast(pl.Int64))
    )
    steps = [set(table["step"].unique().to_list()) for table in tables]
    everywhere = sorted(set.intersection(*steps))
    found = []
    for table in tables:
        rest = table.filter(~pl.col("step").is_in(everywhere))
        lasting = rest.join(usual, on=same, maintain_order="left")
        t0, t1 = lasting["t0"].to_numpy(), (lasting["t1"] - lasting["transfer"]).to_numpy()
        found.append(union(t0[t1 > t0], t1[t1 > t0]))
    return found


def _of_groups(ranks: Sequence[RankCollectives]) -> CollectiveWaits | None:
    """Waiting in each process group among its ranks, where no group has all ranks of the run."""
    tables = sequences([f.collectives.filter(~IS_MESSAGE) for f in ranks])
    total = None
    for key in sorted(set().union(*(t["group"].unique().to_list() for t in tables)) - {UNKNOWN}):
        own = [t.filter(pl.col("group") == key) for t in tables]
        holders = [r for r, t in enumerate(own) if len(t)]
        found = None
        if len(holders) > 1:
            found = _of_all_ranks([replace(ranks[r], collectives=own[r]) for r in holders])
        if found is not None:
            spread = _spread(found, holders, ranks)
            total = spread if total is None else _added(total, spread)
    if total is None:
        return None
    # What waits in two groups at once, on two streams, waits once.
    waits = zip(total.exposed_wait, ranks, strict=True)
    return replace(total, exposed_wait=[np.minimum(ns, _exposed(r)) for ns, r in waits])


def _spread(
    found: CollectiveWaits, holders: Sequence[int], ranks: Sequence[RankCollectives]
) -> CollectiveWaits:
    """What the ranks of a group say, as a part of what all ranks of the run do."""
    place = {r: n for n, r in enumerate(holders)}
    nothing = dict.fromkeys((*EXPLAINS, skew.UNEXPLAINED), 0.0)
    every = range(len(ranks))
    return CollectiveWaits(
        count=found.count,
        steps=found.steps,
        transfer_ns=round(found.transfer_ns * len(holders) / len(ranks)),
        wait_ns=[found.wait_ns[place[r]] if r in place else 0 for r in every],
        late_ns=[found.late_ns[place[r]] if r in place else 0.0 for r in every],
        causes_ns=[found.causes_ns[place[r]] if r in place else nothing for r in every],
        exposed_wait=[
            found.exposed_wait[place[r]]
            if r in place
            else np.zeros(len(ranks[r].edges) - 1, np.int64)
            for r in every
        ],
    )


def _added(one: CollectiveWaits, other: CollectiveWaits) -> CollectiveWaits:
    return CollectiveWaits(
        count=one.count + other.count,
        steps=max(one.steps, other.steps),
        transfer_ns=one.transfer_ns + other.transfer_ns,
        wait_ns=[a + b for a, b in zip(one.wait_ns, other.wait_ns, strict=True)],
        late_ns=[a + b for a, b in zip(one.late_ns, other.late_ns, strict=True)],
        causes_ns=[
            {name: a[name] + b[name] for name in a}
            for a, b in zip(one.causes_ns, other.causes_ns, strict=True)
        ],
        exposed_wait=[a + b for a, b in zip(one.exposed_wait, other.exposed_wait, strict=True)],
    )


def _with_stages(
    found: CollectiveWaits | None, ranks: Sequence[RankCollectives], stages: StageWaits
) -> CollectiveWaits:
    """With the messages between two ranks, of which only one-sided waiting is for a slower rank."""
    one_sided = [ns[r.chosen].sum() for ns, r in zip(stages.one_sided, ranks, strict=True)]
    if found is None:
        found = CollectiveWaits(
            count=0,
            steps=min(max(r.collectives["step"].n_unique(), 1) for r in ranks),
            transfer_ns=0,
            wait_ns=[0] * len(ranks),
            late_ns=[0.0] * len(ranks),
            causes_ns=[dict.fromkeys((*EXPLAINS, skew.UNEXPLAINED), 0.0) for _ in ranks],
            exposed_wait=[np.zeros_like(ns) for ns in stages.exposed],
        )
    return replace(
        found,
        count=found.count + stages.matched,
        transfer_ns=found.transfer_ns + round(sum(stages.transfer_ns) / len(ranks)),
        wait_ns=[a + int(b) for a, b in zip(found.wait_ns, one_sided, strict=True)],
        late_ns=[a + b for a, b in zip(found.late_ns, stages.late_ns, strict=True)],
        causes_ns=[
            {name: a[name] + b[name] for name in a}
            for a, b in zip(found.causes_ns, causes(ranks, stages), strict=True)
        ],
        # What waits in both at once, on two streams, waits once.
        exposed_wait=[
            np.minimum(a + b, _exposed(r))
            for a, b, r in zip(found.exposed_wait, stages.one_sided, ranks, strict=True)
        ],
    )


def _exposed(rank: RankCollectives) -> Int64s:
    rows = rank.collectives
    running = union(rows["t0"].to_numpy(), rows["t1"].to_numpy())
    return per_window(subtract(running, rank.computing), rank.edges)


def _numbers() -> pl.Expr:
    """How many of each group, as a text that can be compared."""
    return pl.col("group").sort().cast(pl.String).str.join(",")


def _in_time(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The same collective in the same row, in the order in which they end on the first rank."""
    alike = [t.sort("step", "order", "iteration") for t in tables]
    time = alike[0].select(pl.arg_sort_by("iteration", "t1")).to_series()
    return [t[time] for t in alike]


def _arrivals(matched: Sequence[pl.DataFrame]) -> skew.Arrivals:
    def stacked(column: str) -> Int64s:
        return np.stack([t[column].to_numpy() for t in matched])

    # Before the first collective of a capture nothing aligns the ranks but their windows.
    aligned = np.stack([t["follows"].to_numpy() for t in matched]).all(axis=0)
    iteration = matched[0]["iteration"].to_numpy()
    return skew.Arrivals(
        t0=stacked("t0"),
        t1=stacked("t1"),
        ends_step=np.concatenate([iteration[1:] != iteration[:-1], [True]]),
        spent_begin={
            name: np.where(aligned, stacked(f"{name}_begin"), stacked(f"{name}_window"))
            for name in EXPLAINS
        },
        spent_end={name: stacked(f"{name}_end") for name in EXPLAINS},
    )

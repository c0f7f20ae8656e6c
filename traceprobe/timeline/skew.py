"""Why ranks wait for each other: what the rank that came last had more of than the others.

Two collectives that nothing overlaps begin a stretch together and end it together on all ranks. So
within such a stretch every rank spends the same time, and what the others wait for the last one is
what it spends on something else: on data, on its host, on computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceprobe.model import Bools, Int64s
from traceprobe.timeline.device import Account
from traceprobe.timeline.intervals import measure_until
from traceprobe.timeline.partition import GROUPS, compute, exclusive

EXPLAINS = ("io", "overhead", "compute")
"""Groups of classes that can make a rank late. Communication cannot: it is what the others wait
in."""
UNEXPLAINED = "other"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Arrivals:
    """Matched collectives in launch order, as arrays (rank, collective), ns on each rank's clock.

    Args:
        begin: end of the collective before, or where the account of the device begins.
        ends_step: per collective, whether it is the last one of its step.
    """

    begin: Int64s
    t0: Int64s
    t1: Int64s
    ends_step: Bools

    @property
    def transfer(self) -> Int64s:
        """Shortest duration of each collective among the ranks."""
        shortest: Int64s = (self.t1 - self.t0).min(axis=0)
        return shortest

    @property
    def wait(self) -> Int64s:
        """What each rank spends in each collective beyond the transfer."""
        return self.t1 - self.t0 - self.transfer

    @property
    def last(self) -> Floats:
        """Whether a rank came last; ranks that came last together have equal parts in it."""
        last = self.wait == 0
        parts: Floats = last / last.sum(axis=0)
        return parts


def causes(accounts: Sequence[Account], arrivals: Arrivals) -> list[dict[str, float]]:
    """Waiting of all ranks, by the rank that came last and by what it had more of; ns.

    Each stretch between two collectives that no rank overlaps with computation is looked at for
    itself; the last collective of a step always ends one. In it, the waiting is divided in
    proportion to the excesses of the last rank over the mean of the others. What is more than
    all its excesses together is unexplained.

    Returns:
        Per rank, the groups of `EXPLAINS`, and `UNEXPLAINED`.
    """
    covered = [_covered(account, arrivals, r) for r, account in enumerate(accounts)]
    during = np.stack([whole for whole, _ in covered])
    exposed = arrivals.wait - np.stack([early for _, early in covered])
    # Where computation hides all waiting it costs nothing, but it still has a cause.
    weight = exposed if exposed.any() else arrivals.wait
    barrier = arrivals.ends_step | (during == 0).all(axis=0)
    barrier[-1] = True
    first = np.flatnonzero(np.concatenate([[True], barrier[:-1]]))
    blame = np.add.reduceat(arrivals.last * weight.sum(axis=0), first, axis=1)
    spent = [
        _spent(account, arrivals.begin[r, first], arrivals.t1[r, barrier])
        for r, account in enumerate(accounts)
    ]
    excess = {name: _excess(np.stack([mine[name] for mine in spent])) for name in EXPLAINS}
    return _divide(blame, excess)


def _divide(blame: Floats, excess: dict[str, Floats]) -> list[dict[str, float]]:
    """Blame (rank, stretch) in proportion to the excesses, as far as these reach."""
    others = max(len(blame) - 1, 1)
    needed = np.maximum(sum(excess.values()), blame / others)
    each = np.divide(blame, needed, out=np.zeros_like(blame), where=needed > 0)
    found = {name: (each * more).sum(axis=1) for name, more in excess.items()}
    rest = blame.sum(axis=1) - sum(found.values())
    return [
        {name: float(ns[r]) for name, ns in found.items()} | {UNEXPLAINED: max(float(left), 0.0)}
        for r, left in enumerate(rest)
    ]


def _excess(spent: Int64s) -> Floats:
    """By how much each rank exceeds the mean of the others, per stretch; 0 where it does not."""
    others = (spent.sum(axis=0) - spent) / (len(spent) - 1)
    more: Floats = np.maximum(spent - others, 0.0)
    return more


def _covered(account: Account, arrivals: Arrivals, rank: int) -> tuple[Int64s, Int64s]:
    """Computation during each collective of a rank, and during its waiting part."""
    busy = compute(account.sets)
    t0, t1 = arrivals.t0[rank], arrivals.t1[rank]
    before = measure_until(busy, t0)
    return (
        measure_until(busy, t1) - before,
        measure_until(busy, t1 - arrivals.transfer) - before,
    )


def _spent(account: Account, begin: Int64s, end: Int64s) -> dict[str, Int64s]:
    """Time of each group in each stretch [begin, end)."""
    # Collectives on several streams may end out of order; a stretch then is empty, not negative.
    edges = np.maximum.accumulate(np.stack([begin, end], axis=1).ravel())
    parts = exclusive(account.sets, edges)
    return {
        name: sum((parts[p] for p in GROUPS[name]), np.zeros(len(edges) - 1, np.int64))[::2]
        for name in EXPLAINS
    }

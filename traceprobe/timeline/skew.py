"""Why ranks wait for each other: what the rank that came last had more of than the others.

Two collectives that nothing overlaps begin a stretch together and end it together on all ranks. So
within such a stretch every rank spends the same time, and what the others wait for the last one is
what it spends on something else: on data, on its host, on computing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.model.codes import Bools, Int64s
from traceprobe.timeline.intervals import Intervals, measure_between
from traceprobe.timeline.rank_collectives import EXPLAINS

UNEXPLAINED = "other"
Floats = npt.NDArray[np.float64]


class Arrivals(msgspec.Struct, frozen=True):
    """Matched collectives by their ends, as arrays (rank, collective), ns on each rank's clock.

    Args:
        ends_step: per collective, whether it is the last one of its step.
        spent_begin, spent_end: per group of `EXPLAINS`, the time that a rank has spent on it until
            the end of the collective before, or where its window begins, and until `t1`.
    """

    t0: Int64s
    t1: Int64s
    ends_step: Bools
    spent_begin: Mapping[str, Int64s]
    spent_end: Mapping[str, Int64s]

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
    def arrived(self) -> Int64s:
        """When the last rank was there, by the clock of each: the end of all waiting."""
        there: Int64s = self.t1 - self.transfer
        return there

    @property
    def own_wait(self) -> tuple[Int64s, Int64s]:
        """From when on each rank waits for a collective and not for one before it, and until when.

        Collectives of several streams, or threads, wait at the same time.
        """
        arrived, begins = self.arrived, self.t0.copy()
        before = np.maximum.accumulate(arrived, axis=1)[:, :-1]
        begins[:, 1:] = np.clip(before, self.t0[:, 1:], arrived[:, 1:])
        return begins, arrived

    @property
    def first_begin(self) -> Int64s:
        """When the first of each collective and those behind it begins, on each rank."""
        begins: Int64s = np.minimum.accumulate(self.t0[:, ::-1], axis=1)[:, ::-1]
        return begins

    @property
    def last(self) -> Floats:
        """Whether a rank came last; ranks that came last together have equal parts in it."""
        last = self.wait == 0
        parts: Floats = last / last.sum(axis=0)
        return parts


def wait_causes(computing: Sequence[Intervals], arrivals: Arrivals) -> list[dict[str, float]]:
    """Waiting of all ranks, by the rank that came last and by what it had more of; ns.

    Each stretch between two collectives that no rank overlaps with computation, nor with another
    collective, is looked at for itself; the last collective of a step always ends one. In it, the
    waiting is divided in proportion to the excesses of the last rank over the mean of the others.
    What is more than all its excesses together is unexplained.

    Args:
        computing: per rank, computation during the collectives.

    Returns:
        Per rank, the groups of `EXPLAINS`, and `UNEXPLAINED`.
    """
    during = _covered(computing, arrivals.t0, arrivals.t1)
    begins, arrived = arrivals.own_wait
    own = arrived - begins
    exposed = own - _covered(computing, begins, arrived)
    # Where computation hides all waiting it costs nothing, but it still has a cause.
    weight = exposed if exposed.any() else own
    alone = (arrivals.t1[:, :-1] <= arrivals.first_begin[:, 1:]).all(axis=0)
    barrier = arrivals.ends_step | ((during == 0).all(axis=0) & np.append(alone, True))
    barrier[-1] = True
    first = np.flatnonzero(np.concatenate([[True], barrier[:-1]]))
    blame = np.add.reduceat(arrivals.last * weight.sum(axis=0), first, axis=1)
    more = {
        name: excess(_spent(arrivals.spent_begin[name], arrivals.spent_end[name], first))
        for name in EXPLAINS
    }
    return divide(blame, more)


def divide(blame: Floats, excess: dict[str, Floats]) -> list[dict[str, float]]:
    """Blame (rank, stretch) in proportion to the excesses, as far as these reach; ns by cause."""
    others = max(len(blame) - 1, 1)
    needed = np.maximum(sum(excess.values()), blame / others)
    each = np.divide(blame, needed, out=np.zeros_like(blame), where=needed > 0)
    found = {name: (each * more).sum(axis=1) for name, more in excess.items()}
    rest = blame.sum(axis=1) - sum(found.values())
    return [
        {name: float(ns[r]) for name, ns in found.items()} | {UNEXPLAINED: max(float(left), 0.0)}
        for r, left in enumerate(rest)
    ]


def excess(spent: Int64s | Floats) -> Floats:
    """By how much each rank exceeds the mean of the others, per stretch; 0 where it does not."""
    others = (spent.sum(axis=0) - spent) / (len(spent) - 1)
    more: Floats = np.maximum(spent - others, 0.0)
    return more


def _covered(computing: Sequence[Intervals], t0: Int64s, t1: Int64s) -> Int64s:
    """Computation of each rank between its times (rank, collective)."""
    return np.stack([measure_between(*each) for each in zip(computing, t0, t1, strict=True)])


def _spent(begin: Int64s, end: Int64s, first: Int64s) -> Int64s:
    """Time spent in each stretch (rank, stretch), by the number of its first collective.

    Args:
        begin, end: what was spent until each collective began to matter, and until it ended.
    """
    # Collectives on several streams may end out of order; a stretch then is empty, not negative.
    # What was spent never shrinks in time, so the latest instant is where most was spent.
    begins = np.minimum.reduceat(begin, first, axis=1)
    ends = np.maximum.reduceat(end, first, axis=1)
    edges = np.stack([begins, ends], axis=2).reshape(len(begin), -1)
    spent: Int64s = np.diff(np.maximum.accumulate(edges, axis=1), axis=1)[:, ::2]
    return spent

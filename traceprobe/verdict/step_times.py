"""What a step of a rank takes, by what it is spent on."""

from __future__ import annotations

import msgspec

from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.rank import Rank
from traceprobe.verdict.drift import Drift, iterations_after


class Times(msgspec.Struct, frozen=True):
    """ns per step of one rank.

    `skew` is exposed waiting for other ranks, 0 where unknown; `unexplained` is idle time of
    unknown cause, and `lasting` what else is neither work nor waiting, which survives a profiler.
    `unseen_skew` is the part of `skew` that is not in the capture: waiting for ranks that wait
    longer for their loaders without the profiler.
    """

    data_wait: float
    h2d: float
    communication: float
    skew: float
    overhead: float
    compute: float
    lasting: float
    unexplained: float
    unseen_skew: float = 0.0

    @property
    def other(self) -> float:
        """What no bound is about."""
        return self.lasting + self.unexplained

    @property
    def io(self) -> float:
        """Waiting for data and copying it."""
        return self.data_wait + self.h2d

    @property
    def total(self) -> float:
        """The step."""
        return self.io + self.communication + self.skew + self.overhead + self.compute + self.other


def per_step(rank: Rank, drift: Drift | None = None) -> Times:
    """A rank's partition in the five groups plus skew; after `drift` where iterations follow it.

    What holds up a device that has its work is no overhead: nothing that launches less or sooner
    takes it away. Its cause is as unknown as that of a silent host, but where it waits for another
    device of its process, as the stage of a pipeline does: that counts for communication.
    """
    totals, steps = rank.summary.partition_ns, rank.summary.steps
    held = rank.summary.host.held_idle_ns
    turns = rank.summary.host.awaiting_device_ns() / steps
    waited = 0
    if rank.summary.communication is not None:
        waited = rank.summary.communication.skew_exposed_ns or 0
    late = iterations_after(rank, drift) if drift is not None else []
    if late:
        totals = {n: sum((i.partition_ns or {}).get(n) or 0 for i in late) for n in totals}
        waited, steps = sum(i.skew_exposed_ns or 0 for i in late), len(late)
        held = 0  # of single iterations it is not known
    part = {name: (value or 0) / steps for name, value in totals.items()}
    skew = waited / steps
    overhead = sum(part[name] for name in SHARE_CLASSES["overhead"]) - held / steps
    turns = min(turns, overhead)  # as many in each iteration as in the mean
    return Times(
        data_wait=part["idle_data_wait"],
        h2d=part["h2d"],
        communication=part["communication"] + turns - skew,
        skew=skew,
        overhead=overhead - turns,
        compute=sum(part[name] for name in SHARE_CLASSES["compute"]),
        lasting=sum(part[name] for name in SHARE_CLASSES["other"]) - part["idle_unexplained"],
        unexplained=part["idle_unexplained"] + held / steps,
    )

"""What several ranks say together: collectives, stragglers, groups of ranks, links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.texts import Name, Word

Algorithm = Literal["ring", "tree"]
"""How a collective passes a message among its ranks."""


class RankGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that agree in step time and shares."""

    members: list[int]
    median_rank: int


class StepMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of every rank; a row for each of `ranks`, a column for each of `labels`."""

    ranks: list[int]
    labels: list[Name]
    iterations_per_bin: int
    step_ms: list[list[float | None]]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to see in many ranks before any of them is looked at."""

    groups: list[RankGroup]
    worst_rank: int
    median_rank: int
    detailed_ranks: list[int]
    steps: StepMatrix

    def problems(self, numbers: Sequence[int]) -> Iterator[str]:
        """What it contradicts itself in, or the run, whose ranks have these numbers."""
        steps = self.steps
        complete = len(steps.step_ms) == len(steps.ranks) and all(g.members for g in self.groups)
        if steps.iterations_per_bin < 1 or not complete:
            yield "run.overview: its matrix or its groups are incomplete"
        members = [rank for group in self.groups for rank in group.members]
        if sorted(members) != sorted(numbers) or steps.ranks != numbers:
            yield "the overview does not hold every rank once"
        if any(group.median_rank not in group.members for group in self.groups):
            yield "the median of a group is not a member"
        if not {self.worst_rank, self.median_rank} <= set(self.detailed_ranks) <= set(numbers):
            yield "the worst or the median rank has no details"
        if any(len(row) != len(steps.labels) for row in steps.step_ms):
            yield "the matrix of steps is ragged"


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """What joins the ranks, fitted to the transfers of collectives of the whole run."""

    gbps: float
    """Bus bandwidth of a large message, as nccl-tests defines it."""
    latency_us: float | None
    """Of one hop of a ring; None where the messages do not differ enough in size to tell."""
    fit_error: float
    """Root mean square of the relative errors of the transfers."""
    messages: int
    """Operations and sizes that it was fitted to."""
    nvlink_gbps: float | None
    """What NVLink of these GPUs does in one direction; None where that is not known."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What only several ranks together can say; ns per step, summed over its collectives."""

    world_size: int
    collectives_matched: int
    transfer_ns: int | None
    skew_ns: int | None
    straggler_rank: int | None
    straggler_cause: Word | None
    skew_causes: dict[Word, float] | None = None
    """Parts of the exposed waiting by what the ranks that came last had more of; they sum to 1."""
    late_ranks: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Ranks that are waited for together; not there where it is one, nobody, or most by turns."""
    straggler_wait_ns: int | msgspec.UnsetType = msgspec.UNSET
    """What the other ranks wait for the straggler, their mean; not there without a straggler in the
    capture, nor in older reports."""
    overview: Overview | msgspec.UnsetType = msgspec.UNSET
    """Not there with fewer than three ranks."""
    links: Links | msgspec.UnsetType = msgspec.UNSET
    """Not there where no message that was matched on all ranks has a known size."""
    unseen_skew_ms: float | msgspec.UnsetType = msgspec.UNSET
    """What the others wait in a step for the straggler's loader, without the profiler and not in
    the capture; not there where that is no more than what they wait in the capture."""

    def problems(self, numbers: Sequence[int]) -> Iterator[str]:
        """What it contradicts itself in, or its ranks, which have these numbers."""
        if self.world_size < 1 or self.collectives_matched < 0:
            yield "run: a count is negative"
        if min(self.transfer_ns or 0, self.skew_ns or 0) < 0:
            yield "run: a time is negative"
        if self.world_size < len(numbers):
            yield "a run of fewer ranks than there are"
        if (self.transfer_ns is None) != (self.skew_ns is None):
            yield "transfer without skew, or the reverse"
        if (self.straggler_rank is None) != (self.straggler_cause is None):
            yield "straggler without a cause, or the reverse"
        if self.straggler_rank is not None and self.straggler_rank not in numbers:
            yield "the straggler is none of the ranks"
        late = [] if self.late_ranks is msgspec.UNSET else self.late_ranks
        if not set(late) <= set(numbers) or (late and self.straggler_rank is not None):
            yield "the late ranks are none of the ranks, or there is a straggler too"
        causes = sum((self.skew_causes or {}).values())
        if self.skew_causes and (self.skew_ns is None or not abs(causes - 1) <= SHARE_ROUNDING):
            yield "skew_causes without skew, or they do not sum to 1"
        if isinstance(self.overview, Overview):
            yield from self.overview.problems(numbers)


def straggler_of(run: Run | None) -> int | None:
    """The rank that all others wait for; None without one, or without a run of several."""
    return None if run is None else run.straggler_rank

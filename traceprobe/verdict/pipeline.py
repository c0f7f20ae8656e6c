"""The bubble of a pipeline: what its stages wait for each other, and what its schedule has to cost.

With p stages and m micro-batches, GPipe and 1F1B both keep a stage waiting for p − 1 of m + p − 1
turns (Huang et al., GPipe, 2019; Narayanan et al., PipeDream-2BW, 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec
from msgspec import UNSET

from traceprobe.records.rank import Rank
from traceprobe.verdict.thresholds import FIXED


class Schedule(msgspec.Struct, frozen=True):
    """Stages and micro-batches of a step."""

    stages: int
    micro_batches: int

    @property
    def ideal(self) -> float:
        """Share of the step that equal stages wait."""
        return (self.stages - 1) / (self.micro_batches + self.stages - 1)


def bubble_ms(ranks: Sequence[Rank]) -> float | None:
    """What a stage waits in a step, of the stage that waits least; None without any stages.

    What the others wait beyond that is for a slower stage.
    """
    in_process = turns_ms(ranks)
    waits = [
        communication.stage_wait_ns / rank.summary.steps / 1e6
        for rank in ranks
        if (communication := rank.summary.communication) is not None
        and communication.stage_wait_ns is not UNSET
    ]
    if in_process is None:
        return min(waits) if waits else None
    return in_process + min(waits, default=0.0)


def turns_ms(ranks: Sequence[Rank]) -> float | None:
    """What devices wait in a step for another one of their process, mean; None without any.

    They compute the parts of a model by turns.
    """
    waits = [rank.summary.host.awaiting_device_ns() / rank.summary.steps / 1e6 for rank in ranks]
    return fmean(waits) if any(waits) else None


def mostly_turns(ranks: Sequence[Rank]) -> bool:
    """Whether most of what counts for communication is devices of a process that take turns."""
    if turns_ms(ranks) is None:
        return False
    turns = sum(rank.summary.host.awaiting_device_ns() for rank in ranks)
    messages = sum(rank.summary.partition_ns["communication"] or 0 for rank in ranks)
    return turns > FIXED.mostly_bubble * (turns + messages)


def is_pipeline(ranks: Sequence[Rank]) -> bool:
    """Whether several ranks are stages that send each other micro-batches."""
    return len(ranks) > 1 and any(
        communication.stage_wait_ns is not UNSET
        for rank in ranks
        if (communication := rank.summary.communication) is not None
    )


def schedule(ranks: Sequence[Rank], world_size: int) -> Schedule | None:
    """Stages and micro-batches by the messages of each rank; None where they do not tell.

    The first and the last stage send or receive a micro-batch on its way forward and on its way
    back, the stages between them twice as often. Several pipelines side by side have as many
    ends as there are stages at theirs. None unless all ranks are there.

    1F1B of PyTorch sends a micro-batch on and receives another one back in one call, so that two
    stages have one message more than micro-batches. These are mostly even, so messages are odd.
    """
    counts = [_messages(rank) for rank in ranks]
    fewest = min(counts, default=0.0)
    if len(ranks) < world_size or len(ranks) < 2 or fewest <= 0:
        return None
    if len(ranks) == 2 and counts[0] == counts[1] and fewest > 1 and fewest % 2 == 1:
        return Schedule(2, round(fewest) - 1)
    ends = sum(count < FIXED.end_stage * fewest for count in counts)
    stages, rest = divmod(2 * len(ranks), ends)
    micro_batches = round(fewest / 2)
    told = abs(fewest / 2 - micro_batches) <= FIXED.count_rounding and micro_batches > 0
    return Schedule(stages, micro_batches) if told and not rest and stages > 1 else None


def _messages(rank: Rank) -> float:
    """Messages between two ranks in a step."""
    groups = rank.summary.collectives
    return sum(g.count for g in groups if g.operation == "send_recv") / rank.summary.steps

"""Messages between pairs of ranks that are an exchange of all of them, by how many each has.

Nsight Systems records no more of a message than its kernel, which is the same for a stage that
sends to the next one and for an all-to-all. Stages inside a pipeline have two neighbours and those
at its ends one, so that their numbers of messages differ. What all of three ranks and more launch
equally often in each iteration, they launch together.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from traceprobe.model.codes import UNKNOWN, Operation
from traceprobe.timeline.collectives import CollectiveGroup
from traceprobe.timeline.rank_collectives import RankCollectives
from traceprobe.timeline.stage_waits import IS_MESSAGE

FEWEST = 3
"""Ranks that tell: of two, each is the only neighbour of the other."""


def are_exchanges(ranks: Sequence[RankCollectives]) -> bool:
    """Whether messages of several ranks are all-to-all, though nothing calls them so.

    Nothing is concluded where the trace names process groups or sizes: then it tells operations.
    """
    tables = [rank.collectives.filter(IS_MESSAGE) for rank in ranks]
    if len(tables) < FEWEST or not all(len(table) for table in tables):
        return False
    if any((table["group"] != UNKNOWN).any() for table in tables):
        return False
    counts = [table.group_by("step").len() for table in tables]
    common = counts[0]
    for other in counts[1:]:
        common = common.join(other, on="step", suffix="_there")
        if not (common["len"] == common["len_there"]).all():
            return False
        common = common.drop("len_there")
    return bool(len(common))


def with_exchanges(rank: RankCollectives) -> RankCollectives:
    """The same rank, whose messages are all-to-all."""
    named = pl.when(IS_MESSAGE).then(int(Operation.ALL_TO_ALL)).otherwise("operation")
    kind = rank.collectives.schema["operation"]
    return replace(rank, collectives=rank.collectives.with_columns(operation=named.cast(kind)))


def exchanged(groups: Sequence[CollectiveGroup]) -> list[CollectiveGroup]:
    """The same of what a rank reports of its messages."""
    return [
        replace(group, operation=Operation.ALL_TO_ALL)
        if group.operation == Operation.SEND_RECV
        else group
        for group in groups
    ]

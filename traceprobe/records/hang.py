"""The result of `traceprobe hang`: which collective a run hangs in, and which rank is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.records.base import Record
from traceprobe.records.report import Message
from traceprobe.records.texts import Name, Sentence, Word

Cause = Literal[
    "none", "mismatch", "absent", "unmatched", "no-dump", "circle", "unfinished", "follows"
]
"""Why a group does not go on, in the order in which one explains the others."""
Where = Literal["waits", "differs", "elsewhere", "absent", "finished", "no-dump"]
"""What a rank does about the collective that its group hangs in."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A collective, or a send or receive, that a rank issued."""

    group: Name
    sequence: int
    """Number of the call in its group, from 1."""
    operation: Word
    elements: int | None
    """Of its message on this rank; None where the dump does not say."""
    dtypes: list[Word]
    state: Literal["scheduled", "started", "completed"]
    line: Name | None
    """`train.py(57): train_step`, of the program and not of a library; None without stacks."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a group that hangs."""

    rank: int
    where: Where
    issued: int | None
    """Number of the last collective that it issued in the group; None without a dump."""
    call: Call | None
    """The call at issue; of a rank that is elsewhere the one it waits in, of an absent one the last
    that it issued."""


class HangGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group."""

    name: Name
    description: Name
    ranks: list[int]
    listed: bool
    """Whether the dumps list its ranks; else they are those that called it."""
    completed: int
    """Number of the last collective that all ranks with a dump have completed."""
    last: Call | None
    """That collective, on the first rank that has it."""
    stuck: int | None
    """Number of the first that some rank waits in; None where none does."""
    cause: Cause
    standings: list[Standing]
    """Empty where nothing is stuck."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        name = f"group {self.name}"
        if self.ranks != sorted(set(self.ranks)) or min(self.ranks, default=0) < 0:
            yield f"{name}: its ranks are out of order"
        if not {each.rank for each in self.standings} <= {*self.ranks}:
            yield f"{name}: has ranks that are not its own"
        if (self.stuck is None) != (self.cause == "none") or (
            self.stuck is None and self.standings
        ):
            yield f"{name}: is stuck for no cause, or not stuck for one"
        if self.completed < 0 or (self.stuck is not None and self.stuck <= 0):
            yield f"{name}: a number of a collective is not above 0"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Sends and receives that do not fit each other."""

    group: Name
    source: int
    target: int
    sends: int
    receives: int
    """Unfinished ones from `source` to `target`, as each of the two issued them."""
    line: Name | None
    """Where the first that waits was called."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.source, self.target, self.sends, self.receives) < 0:
            yield "a pair of ranks has a negative number"
        if self.sends == self.receives:
            yield "a pair of ranks has as many sends as receives"


class Hang(Record, frozen=True, kw_only=True):
    """What the dumps of the ranks say together. See `docs/hang.md` for the meaning of a field."""

    kind: Literal["hang"] = "hang"
    headline: Sentence
    title: Sentence
    cause: Cause
    explained_by: int | None
    """Index in `groups` of the group that explains the others; None where none hangs."""
    ranks: list[int]
    """Of those whose dumps were read."""
    without_dump: list[int]
    """Ranks of the groups of which no dump was given."""
    groups: list[HangGroup]
    pairs: list[Pair]
    points: list[Sentence]
    cautions: list[Message]
    inputs: list[Name]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        for group in self.groups:
            yield from group.problems()
        for pair in self.pairs:
            yield from pair.problems()
        if self.explained_by is not None and not 0 <= self.explained_by < len(self.groups):
            yield "no group explains it"
        if self.cause == "none" and any(group.cause != "none" for group in self.groups):
            yield "a group hangs, and the run does not"
        if {*self.ranks} & {*self.without_dump}:
            yield "a rank has a dump and none"

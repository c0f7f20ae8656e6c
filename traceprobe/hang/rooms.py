"""Who waits in which collective, and for whom.

A *room* is the first collective of a group that some rank waits in. Other ranks of the group should
be there too; where these wait in other rooms, the rooms form a graph. A room whose ranks are
nowhere else explains those that wait for it, and a circle explains itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from traceprobe.hang.rank_view import GroupView, RankView
from traceprobe.model.flight_record import Entry, GroupKey, Tensors
from traceprobe.records.hang import Cause

DEFAULT_GROUP = "default_pg"
"""Description that PyTorch gives the group of all ranks."""
MOST_UNLISTED = 1 << 16
"""Ranks that a group has which no dump lists."""
_MOST_ELEMENTS = 1 << 50
_BY_INPUT = ("all_reduce", "allreduce", "reduce", "reduce_scatter", "_reduce")
_BY_OUTPUT = ("all_gather", "_all_gather", "allgather", "broadcast", "_broadcast")
Signature = tuple[tuple[str, int | None, tuple[str, ...]], ...]


class Room(msgspec.Struct, frozen=True):
    """A collective that a group hangs in. Ranks are in ascending order.

    Args:
        sitting: ranks that issued it and are not done with it, by what they issued; the largest set
            first. Several where they issued different things.
        finished: ranks that are done with it.
        absent: ranks that did not issue it, and wait for nothing.
        elsewhere: ranks that did not issue it, and wait in something else.
        no_dump: ranks that may be anywhere.
        since_ns: when it was first issued.
    """

    group: GroupKey
    sequence: int
    sitting: Sequence[tuple[int, ...]]
    finished: tuple[int, ...]
    absent: tuple[int, ...]
    elsewhere: tuple[int, ...]
    no_dump: tuple[int, ...]
    since_ns: int
    cause: Cause

    @property
    def waiting(self) -> tuple[int, ...]:
        """All that sit in it."""
        return tuple(sorted(rank for ranks in self.sitting for rank in ranks))


def members(group: GroupKey, views: Mapping[int, RankView]) -> tuple[int, ...]:
    """The ranks of a group.

    Those that are listed, and whoever called it. Where the dumps list none, they are all up to the
    last for the default group, else those that called it. One caller alone would not wait: then all
    ranks may be meant.
    """
    callers = sorted(rank for rank, view in views.items() if group in view.groups)
    if group.ranks:
        return tuple(sorted({*group.ranks, *callers}))
    if group.description == DEFAULT_GROUP and max(views) < MOST_UNLISTED:
        return tuple(range(max(views) + 1))
    return tuple(callers if len(callers) > 1 else sorted(views))


def rooms(views: Mapping[int, RankView]) -> list[Room]:
    """Where ranks wait, by the time of the first call; with the cause of each."""
    first: dict[GroupKey, int] = {}
    for view in views.values():
        for key, group in view.groups.items():
            if group.unfinished is not None:
                first[key] = min(group.unfinished, first.get(key, group.unfinished))
    found = [_room(key, sequence, views) for key, sequence in first.items()]
    found.sort(key=lambda room: (room.since_ns, room.group))
    in_circle = _in_circles(found, views)
    return [
        replace(room, cause="circle")
        if room.group in in_circle and room.cause in ("follows", "unfinished")
        else room
        for room in found
    ]


def _room(key: GroupKey, sequence: int, views: Mapping[int, RankView]) -> Room:
    classes: dict[Signature, list[int]] = defaultdict(list)
    places: dict[str, list[int]] = defaultdict(list)
    since = []
    for rank in members(key, views):
        view = views.get(rank)
        group = None if view is None else view.groups.get(key)
        if view is None:
            places["no_dump"].append(rank)
        elif group is not None and sequence in group.calls:
            calls = group.calls[sequence]
            since.append(calls[0].created_ns)
            if is_done(group, sequence):
                places["finished"].append(rank)
            else:
                classes[signature(calls)].append(rank)
        elif group is not None and sequence <= group.completed:
            places["finished"].append(rank)
        else:
            places["absent" if view.waiting is None else "elsewhere"].append(rank)
    sitting = sorted((tuple(ranks) for ranks in classes.values()), key=lambda r: (-len(r), r))
    absent, elsewhere, no_dump, finished = (
        tuple(places[name]) for name in ("absent", "elsewhere", "no_dump", "finished")
    )
    cause: Cause = "unfinished"
    if len(sitting) > 1:
        cause = "mismatch"
    elif absent:
        cause = "absent"
    elif elsewhere:
        cause = "follows"
    elif no_dump:
        cause = "no-dump"
    return Room(
        key, sequence, sitting, finished, absent, elsewhere, no_dump, min(since, default=0), cause
    )


def is_done(group: GroupView, sequence: int) -> bool:
    """Whether a rank is done with a collective that it issued."""
    return sequence <= group.completed or all(e.done for e in group.calls[sequence])


def signature(entries: Sequence[Entry]) -> Signature:
    """What ranks must agree in: operations, and the length and type of messages where these count.

    NCCL compares neither; lengths that differ hang or corrupt. Shapes of one length are the same to
    it. What ranks may send unequal parts of (all-to-all, gather, scatter, `_v`) has no length.
    """
    return tuple((entry.operation, *_length_and_type(entry)) for entry in entries)


def _length_and_type(entry: Entry) -> tuple[int | None, tuple[str, ...]]:
    compared = _compared(entry)
    if compared is None:
        return None, ()
    return elements(compared), tuple(sorted({*compared.dtypes}))


def _compared(entry: Entry) -> Tensors | None:
    if entry.operation.endswith(("_v", "_v_single")):
        return None
    if entry.operation.startswith(_BY_OUTPUT):
        return entry.outputs
    return entry.inputs if entry.operation.startswith(_BY_INPUT) else None


def elements(tensors: Tensors) -> int | None:
    """Elements of all tensors together; None where the dump has none or a size makes no sense."""
    if not tensors.sizes or any(side < 0 for sides in tensors.sizes for side in sides):
        return None
    found = sum(math.prod(sides) for sides in tensors.sizes)
    return found if found < _MOST_ELEMENTS else None


def _in_circles(found: Sequence[Room], views: Mapping[int, RankView]) -> set[GroupKey]:
    """Groups whose ranks wait for each other in a circle.

    A room leads to another where a rank that it needs is in that one: it did not issue this call,
    or issued that one before.
    """
    rooms_by_group = {room.group: room for room in found}
    leads: dict[GroupKey, set[GroupKey]] = {}
    for room in found:
        needed = (*room.elsewhere, *room.waiting)
        waiting = [entry for rank in needed if (entry := views[rank].waiting) is not None]
        leads[room.group] = {
            entry.group
            for entry in waiting
            if not entry.point_to_point
            and entry.group != room.group
            and entry.group in rooms_by_group
        }
    return {group for group in leads if group in _reached(group, leads)}


def _reached(start: GroupKey, leads: Mapping[GroupKey, set[GroupKey]]) -> set[GroupKey]:
    """Groups that one leads to, by any number of others."""
    found: set[GroupKey] = set()
    new = {*leads[start]}
    while new:
        found |= new
        new = {group for each in new for group in leads[each]} - found
    return found

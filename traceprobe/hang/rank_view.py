"""One rank's flight record by group: what it issued, what it completed, what it waits in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from traceprobe.model.flight_record import Entry, FlightRecord, GroupKey


class GroupView(msgspec.Struct, frozen=True):
    """The collectives of a rank in one group.

    Args:
        calls: by number; of several that are launched as one, in the order of issue.
        issued, completed: the last, and the last up to which all are done; 0 before the first.
        unfinished: the first that is not done; None without.
    """

    calls: Mapping[int, Sequence[Entry]]
    issued: int
    completed: int
    unfinished: int | None


class RankView(msgspec.Struct, frozen=True):
    """A rank.

    Args:
        groups: in which it issued something.
        waiting: its first operation that is not done; None where all are.
        last: the last that it issued.
        point_to_point: its unfinished sends and receives.
    """

    rank: int
    groups: Mapping[GroupKey, GroupView]
    waiting: Entry | None
    last: Entry | None
    point_to_point: Sequence[Entry]


def rank_view(record: FlightRecord) -> RankView:
    """The record of a rank, by group."""
    collected: dict[GroupKey, dict[int, list[Entry]]] = {}
    for entry in record.entries:
        if not entry.point_to_point and entry.sequence > 0:
            calls = collected.setdefault(entry.group, {})
            calls.setdefault(entry.sequence, []).append(entry)
    groups = {
        key: _group_view(calls, record.completed.get(key, 0)) for key, calls in collected.items()
    }
    waiting = next((e for e in record.entries if not _done(e, record)), None)
    return RankView(
        rank=record.rank,
        groups=groups,
        waiting=waiting,
        last=record.entries[-1] if record.entries else None,
        point_to_point=[e for e in record.entries if e.peers is not None and not e.done],
    )


def _done(entry: Entry, record: FlightRecord) -> bool:
    if entry.done:
        return True
    return not entry.point_to_point and entry.sequence <= record.completed.get(entry.group, 0)


def _group_view(calls: Mapping[int, Sequence[Entry]], known: int) -> GroupView:
    """Args: known: the last that the dump says is completed."""
    open_ones = [
        n for n, entries in calls.items() if n > known and not all(e.done for e in entries)
    ]
    issued, unfinished = max(calls), min(open_ones, default=None)
    completed = issued if unfinished is None else max(unfinished - 1, known)
    return GroupView(calls, issued, completed, unfinished)

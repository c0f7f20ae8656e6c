"""Dumps of the ranks to the record that says what the run hangs in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from traceprobe.errors import UsageError
from traceprobe.hang import wording
from traceprobe.hang.pairs import unmatched
from traceprobe.hang.rank_view import GroupView, RankView, rank_view
from traceprobe.hang.rooms import Room, elements, members, rooms
from traceprobe.model.flight_record import Entry, FlightRecord, GroupKey
from traceprobe.records.hang import Call, Cause, Hang, HangGroup, Pair, Standing, Where
from traceprobe.records.report import Message
from traceprobe.version import __version__

EXPLAINS: tuple[Cause, ...] = (
    *("mismatch", "absent", "unmatched", "no-dump", "circle", "unfinished", "follows"),
)
"""Causes, those first that explain the others."""
PARTIAL = ("gloo",)
"""Backends whose recorder notes collectives only."""


def explain(records: Sequence[FlightRecord], lost: Sequence[Message] = ()) -> Hang:
    """What the dumps say together.

    Args:
        lost: what is to be said of dumps that could not be read.

    Raises:
        UsageError: there is none, or two are of one rank.
    """
    by_rank = {record.rank: record for record in records}
    if not records or len(by_rank) < len(records):
        raise UsageError("name one dump of each rank")
    views = {rank: rank_view(by_rank[rank]) for rank in sorted(by_rank)}
    found, pairs = rooms(views), unmatched(views)
    groups = _groups(records, views, {room.group: room for room in found})
    cause, explaining = _cause(views, found, pairs)
    index = None if explaining is None else [key for key, _ in groups].index(explaining.group)
    without = sorted({r for key, _ in groups for r in members(key, views)} - {*views})
    partial = any(entry.backend in PARTIAL for record in records for entry in record.entries)
    told = wording.Told(cause, explaining, found, pairs, views, without, partial)
    return Hang(
        schema_version=Hang.SCHEMA_VERSION,
        traceprobe_version=__version__,
        title=wording.title(told),
        headline=wording.headline(told),
        cause=cause,
        explained_by=index,
        ranks=[*views],
        without_dump=without,
        groups=[group for _, group in groups],
        pairs=pairs,
        points=list(wording.points(told)),
        cautions=[*lost, *_cautions(records, told)],
        inputs=[by_rank[rank].name for rank in views],
    )


def _cause(
    views: Mapping[int, RankView], found: Sequence[Room], pairs: Sequence[Pair]
) -> tuple[Cause, Room | None]:
    """Why the run hangs, and the room that shows it."""
    explaining = min(found, key=lambda room: EXPLAINS.index(room.cause), default=None)
    cause: Cause = "none" if explaining is None else explaining.cause
    if pairs and (cause == "none" or EXPLAINS.index("unmatched") < EXPLAINS.index(cause)):
        return "unmatched", None
    if cause in ("none", "follows") and any(view.point_to_point for view in views.values()):
        return "unfinished", None
    return cause, explaining


def _groups(
    records: Sequence[FlightRecord], views: Mapping[int, RankView], found: Mapping[GroupKey, Room]
) -> list[tuple[GroupKey, HangGroup]]:
    """All groups that are listed or were called: those that hang first."""
    keys = {key for record in records for key in record.groups.values()}
    keys |= {key for view in views.values() for key in view.groups}
    order = {key: n for n, key in enumerate(found)}
    ordered = sorted(keys, key=lambda key: (order.get(key, len(order)), key))
    return [(key, _group(key, views, found.get(key))) for key in ordered]


def _group(key: GroupKey, views: Mapping[int, RankView], room: Room | None) -> HangGroup:
    ranks = members(key, views)
    seen = {rank: views[rank].groups.get(key) for rank in ranks if rank in views}
    completed = min((0 if g is None else g.completed for g in seen.values()), default=0)
    last = next(
        (g.calls[completed] for g in seen.values() if g is not None and completed in g.calls), None
    )
    return HangGroup(
        name=key.name,
        description=key.description,
        ranks=[*ranks],
        listed=bool(key.ranks),
        completed=completed,
        last=None if last is None else call(last[-1]),
        stuck=None if room is None else room.sequence,
        cause="none" if room is None else room.cause,
        standings=[] if room is None else [_standing(r, room, views.get(r)) for r in ranks],
    )


def _standing(rank: int, room: Room, view: RankView | None) -> Standing:
    if view is None:
        return Standing(rank=rank, where="no-dump", issued=None, call=None)
    group = view.groups.get(room.group)
    where = _where(rank, room)
    return Standing(
        rank=rank,
        where=where,
        issued=0 if group is None else group.issued,
        call=_at_issue(where, room, view, group),
    )


def _where(rank: int, room: Room) -> Where:
    if rank in room.absent:
        return "absent"
    if rank in room.elsewhere:
        return "elsewhere"
    if rank in room.finished:
        return "finished"
    return "waits" if rank in room.sitting[0] else "differs"


def _at_issue(where: Where, room: Room, view: RankView, group: GroupView | None) -> Call | None:
    if where == "absent":
        return None if view.last is None else call(view.last)
    if where == "elsewhere":
        return None if view.waiting is None else call(view.waiting)
    calls = () if group is None else group.calls.get(room.sequence, ())
    return call(calls[-1]) if calls else None


def call(entry: Entry) -> Call:
    """An entry as a record."""
    said = entry.outputs if "gather" in entry.operation else entry.inputs
    return Call(
        group=entry.group.description or entry.group.name,
        sequence=max(entry.sequence, 0),
        operation=entry.operation,
        elements=elements(said),
        dtypes=sorted({*said.dtypes}),
        state="completed" if entry.done else entry.state,
        line=entry.line,
    )


def _cautions(records: Sequence[FlightRecord], told: wording.Told) -> Iterator[Message]:
    if told.without and told.cause != "no-dump":
        yield Message("missing-dumps", wording.missing_dumps(told.without))
    entries = [entry for record in records for entry in record.entries]
    if not entries:
        yield Message("no-entries", wording.NO_ENTRIES)
    elif not any(entry.line for entry in entries):
        yield Message("no-stacks", wording.NO_STACKS)
    if told.partial:
        yield Message("gloo", wording.GLOO)
    if len({record.version for record in records}) > 1:
        yield Message("versions", wording.VERSIONS)

"""What is said of a hang."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from traceprobe.formatting import counted, line_place, ranges, shorten
from traceprobe.hang.rank_view import RankView
from traceprobe.hang.rooms import Room, elements, signature
from traceprobe.model.flight_record import Entry, GroupKey
from traceprobe.records.hang import Cause, Pair

NO_STACKS = (
    "the dumps have no stacks, so no line of the program can be named: the pickles have them, the "
    "JSON has not"
)
GLOO = (
    "the recorder notes neither sends, receives nor barriers of Gloo, nor who belongs to a group: "
    "a rank that seems to be in no collective may be in one of those"
)
VERSIONS = "the dumps have different versions: they may be of different runs"
NO_ENTRIES = (
    "the dumps have no entries: the recorder was off; set TORCH_FR_BUFFER_SIZE (by its older name "
    "TORCH_NCCL_TRACE_BUFFER_SIZE) to 2000"
)
_LONGEST = 60


class Told(msgspec.Struct, frozen=True):
    """What is to be put into words.

    Args:
        room: what explains the others; None where it is no collective, or nothing hangs.
        without: ranks without a dump.
        partial: whether ranks may wait in something that the recorder does not note.
    """

    cause: Cause
    room: Room | None
    rooms: Sequence[Room]
    pairs: Sequence[Pair]
    views: Mapping[int, RankView]
    without: Sequence[int]
    partial: bool


def title(told: Told) -> str:
    """A few words."""
    room = told.room
    if told.cause == "none":
        return "No collective hangs" if told.partial else "No hang"
    if told.cause == "unmatched":
        return "A message has no partner" if len(told.pairs) == 1 else "Messages have no partner"
    if room is None:
        return "A message that does not arrive"
    match told.cause:
        case "mismatch":
            return "Ranks issue different collectives"
        case "absent":
            return f"{_ranks(room.absent)} {_is(room.absent)} missing"
        case "no-dump":
            return f"No dump of {_ranks(room.no_dump, small=True)}"
        case "circle":
            return "Ranks wait for each other in a circle"
        case "follows":
            return f"{_ranks(room.elsewhere)} {_is(room.elsewhere)} in something else"
        case _:
            return "All ranks have joined, but it never completes"


def headline(told: Told) -> str:
    """The result in a sentence or two."""
    room = told.room
    if told.cause == "none":
        return _healthy(told.views)
    if told.cause == "unmatched":
        return " ".join(map(_pair, told.pairs[:3]))
    if room is None:
        return (
            "Sends and receives match, but never complete: look at the network between the ranks."
        )
    waits = f"{_sitters(room, told.views)} {_wait(room.waiting)} in {_call(room, told.views)}"
    match told.cause:
        case "mismatch":
            return _different(room, told.views)
        case "absent":
            return f"{waits}, which {_ranks(room.absent, small=True)} never issued."
        case "no-dump":
            return f"{waits}; of {_ranks(room.no_dump, small=True)} no dump was given{_so(told)}."
        case "circle":
            return _circle(told)
        case "follows":
            return f"{waits}, which {_ranks(room.elsewhere, small=True)} did not get to."
        case _:
            return (
                f"{waits}, and all of them issued the same: it is not the program that keeps it "
                "from completing. Look at the network, the GPUs and the logs of NCCL."
            )


def points(told: Told) -> Iterator[str]:
    """What else helps, most important first."""
    for room in told.rooms:
        if room is told.room and room.absent:
            yield from _last_seen(room.absent, told.views)
        if room is told.room and room.cause == "mismatch":
            yield from _left_out(room, told.views)
        for rank in room.elsewhere[:3]:
            waiting = told.views[rank].waiting
            if waiting is not None:
                name = _name(room.group)
                yield f"Group {name} waits for rank {rank}, which is in {_entry(waiting)}"
    if told.room is not None and told.without and told.cause != "no-dump":
        yield f"No dump was given of {_ranks(told.without, small=True)}"


def missing_dumps(without: Sequence[int]) -> str:
    """What is not known for want of dumps."""
    return (
        f"no dump was given of {_ranks(without, small=True)}, which belong{_s(without)} to the "
        "groups: what is said of the others may follow from there"
    )


def _healthy(views: Mapping[int, RankView]) -> str:
    counts = {rank: sum(g.completed for g in view.groups.values()) for rank, view in views.items()}
    least, most = min(counts.values()), max(counts.values())
    if not most:
        return "No rank issued a collective that the dumps still hold."
    if len(views) == 1:
        return f"Rank {next(iter(views))} completed all {counted(most, 'collective')} it issued."
    if least == most:
        return f"All {len(views)} ranks completed the same {counted(most, 'collective')}."
    return (
        f"No rank waits in a collective; of {counted(most, 'collective')} every rank completed at "
        f"least {least}."
    )


def _different(room: Room, views: Mapping[int, RankView]) -> str:
    parts = []
    for ranks in room.sitting[:3]:
        entry = _first(room, ranks[0], views)
        parts.append(f"{_ranks(ranks, small=True)} issued {_what(entry)}{_at(entry)}")
    more = (
        "; the remaining ranks issued something else again"
        if len(room.sitting) > len(parts)
        else ""
    )
    return (
        f"As collective {room.sequence} of group {_name(room.group)}, {' and '.join(parts)}{more}."
    )


def _left_out(room: Room, views: Mapping[int, RankView]) -> Iterator[str]:
    """Whether the odd ranks left out a call: what they issued now comes next on the others."""
    usual = views[room.sitting[0][0]].groups[room.group]
    following = usual.calls.get(room.sequence + 1)
    for ranks in room.sitting[1:]:
        odd = views[ranks[0]].groups[room.group].calls[room.sequence]
        if following is not None and signature(following) == signature(odd):
            yield (
                f"{_ranks(ranks)} seem{_s(ranks)} to have left out a call: the others issued as "
                f"{room.sequence + 1} what {'it' if len(ranks) == 1 else 'they'} issued as "
                f"{room.sequence}"
            )


def _last_seen(ranks: Sequence[int], views: Mapping[int, RankView]) -> Iterator[str]:
    for rank in ranks[:3]:
        last = views[rank].last
        if last is None:
            yield f"Rank {rank} issued nothing that its dump still holds"
        else:
            yield f"The last that rank {rank} completed is {_entry(last)}"


def _so(told: Told) -> str:
    """What follows from missing dumps: nothing where most are missing."""
    if len(told.without) >= len(told.views):
        return ": name the dumps of all ranks to see which of them is missing"
    they = "it is" if len(told.without) == 1 else "they are"
    return f", so {they} most likely dead, or hung outside of a collective"


def _pair(pair: Pair) -> str:
    where = "" if pair.line is None else f", at {line_place(pair.line)}"
    if pair.receives > pair.sends:
        return (
            f"Rank {pair.target} waits for {counted(pair.receives, 'message')} from rank "
            f"{pair.source}{where}; that sent {pair.sends or 'none'}."
        )
    return (
        f"Rank {pair.source} sends {counted(pair.sends, 'message')} to rank "
        f"{pair.target}{where}; that asked for {pair.receives or 'none'}."
    )


def _circle(told: Told) -> str:
    """Who waits where, of the groups of the circle."""
    parts: list[str] = []
    for room in told.rooms:
        ranks = [r for r in room.waiting if _waits_in(told.views[r], room)]
        if room.cause == "circle" and ranks:
            entry = _first(room, ranks[0], told.views)
            parts.append(
                f"{_ranks(ranks, small=bool(parts))} {_wait(ranks)} in {_what(entry)} of group "
                f"{_name(room.group)}{_at(entry)}"
            )
    return (
        f"{', and '.join(parts[:3])}: each waits for the others. Issue the collectives of "
        "different groups in one order on all ranks."
    )


def _waits_in(view: RankView, room: Room) -> bool:
    return view.waiting is not None and view.waiting.group == room.group


def _sitters(room: Room, views: Mapping[int, RankView]) -> str:
    everybody = len(room.waiting) == len(views) > 1
    return f"All {len(views)} ranks" if everybody else _ranks(room.waiting)


def _call(room: Room, views: Mapping[int, RankView]) -> str:
    entry = _first(room, room.waiting[0], views)
    return f"{_what(entry)}, collective {room.sequence} of group {_name(room.group)}{_at(entry)}"


def _entry(entry: Entry) -> str:
    number = f"collective {entry.sequence}" if not entry.point_to_point else "a message"
    return f"{_what(entry)}, {number} of group {_name(entry.group)}{_at(entry)}"


def _first(room: Room, rank: int, views: Mapping[int, RankView]) -> Entry:
    return views[rank].groups[room.group].calls[room.sequence][0]


def _what(entry: Entry) -> str:
    """`all_reduce of 1024 Float`."""
    tensors = entry.outputs if "gather" in entry.operation else entry.inputs
    count, dtypes = elements(tensors), sorted({*tensors.dtypes})
    name = shorten(entry.operation, _LONGEST) or "an operation"
    if count is None:
        return name
    kind = f" {shorten(dtypes[0], _LONGEST)}" if len(dtypes) == 1 else " elements"
    return f"{name} of {count:,}{kind}"


def _name(group: GroupKey) -> str:
    """`dp (2)`: what it is called and what it is for."""
    about = group.description if group.description not in ("", "undefined") else ""
    if not about:
        return shorten(group.name, _LONGEST) or "without a name"
    return f"{shorten(about, _LONGEST)} ({shorten(group.name, _LONGEST)})"


def _at(entry: Entry) -> str:
    return "" if entry.line is None else f", at {line_place(entry.line)}"


def _ranks(ranks: Sequence[int], *, small: bool = False) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word if small else word.capitalize()} {ranges(ranks)}"


def _is(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _s(ranks: Sequence[int]) -> str:
    return "s" if len(ranks) == 1 else ""


def _wait(ranks: Sequence[int]) -> str:
    return f"wait{_s(ranks)}"

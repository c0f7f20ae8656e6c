"""A hang told in sections."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, line_place, ranges
from traceprobe.records.hang import Call, Cause, Hang, HangGroup, Pair, Where
from traceprobe.render.document import Document, Section, Table, Tone

CAUSES: dict[Cause, str] = {
    "none": NOT_OBSERVED,
    "mismatch": "ranks issued different collectives",
    "absent": "ranks never issued it",
    "unmatched": "a message has no partner",
    "no-dump": "ranks left no dump",
    "circle": "ranks wait for each other in a circle",
    "unfinished": "all ranks issued it, but it never completes",
    "follows": "ranks wait in something else",
}
PLACES: dict[Where, str] = {
    "waits": "waits in it",
    "differs": "issued something else",
    "elsewhere": "waits elsewhere",
    "absent": "never issued it",
    "finished": "is done with it",
    "no-dump": "left no dump",
}
_ODD: dict[Where, Tone] = {
    "differs": "bad",
    "absent": "bad",
    "no-dump": "bad",
    "elsewhere": "unclear",
}
_CONTENTS = (
    "Names of process groups and of collectives, sizes of messages, and of the program the base "
    "names of its files with lines and functions. No folders, host names, user names, environment "
    "or source code. Nothing is loaded from or sent to a network. Where that is too much, write it "
    "with `--redact`."
)
_HELP = (
    "Ranks of a group issue the same collectives in the same order, and none ends before all have "
    "issued it. The first that never completes is where to look; what comes after it waits as well."
)


def document(found: Hang) -> Document:
    """The hang for all outputs."""
    return Document(
        kind=found.kind,
        title=found.title,
        secondary=f"{len(found.ranks)} ranks" if len(found.ranks) > 1 else "",
        tone="good" if found.cause == "none" else "bad",
        headline=found.headline,
        points=found.points,
        cautions=[caution.message for caution in found.cautions],
        sections=list(_sections(found)),
        inputs=found.inputs,
        version=found.traceprobe_version,
        json=found.to_json(),
        contents=_CONTENTS,
    )


def _sections(found: Hang) -> Iterator[Section]:
    if found.explained_by is not None:
        yield _ranks_of(found.groups[found.explained_by], "ranks")
    if found.pairs:
        yield Section("pairs", "Messages without a partner", blocks=[_pairs(found.pairs)])
    if found.groups:
        yield Section("groups", "Process groups", blocks=[_groups(found.groups)], help=_HELP)
    for n, group in enumerate(found.groups):
        if group.standings and n != found.explained_by:
            yield _ranks_of(group, f"ranks-{n + 1}", folded=True)


def _ranks_of(group: HangGroup, name: str, *, folded: bool = False) -> Section:
    return Section(
        name,
        f"Collective {group.stuck} of group {_title(group)}",
        blocks=[_standings(group)],
        folded=folded,
        brief=not folded,
        nav=f"Ranks of {_title(group)}" if folded else "Ranks",
    )


def _title(group: HangGroup) -> str:
    return f"{group.description} ({group.name})" if group.description else group.name


def _standings(group: HangGroup) -> Table:
    """Odd ranks first: of a thousand, most wait."""
    told = sorted(group.standings, key=lambda each: (each.where not in _ODD, each.rank))
    rows = [
        [
            str(each.rank),
            PLACES[each.where],
            _what(each.call),
            NOT_OBSERVED if each.call is None else _number(each.call),
            NOT_OBSERVED
            if each.call is None or each.call.line is None
            else line_place(each.call.line),
        ]
        for each in told
    ]
    return Table(
        "Ranks and the call that each is at",
        ("rank", "where it is", "call", "of group", "line"),
        rows,
        frozenset({0}),
        [_ODD.get(each.where, "plain") for each in told],
        names=frozenset({4}),
    )


def _number(call: Call) -> str:
    ended = ", done" if call.state == "completed" else ""
    return f"{call.group} #{call.sequence}{ended}"


def _what(call: Call | None) -> str:
    """`all_reduce of 1,024 Float`."""
    if call is None:
        return NOT_OBSERVED
    if call.elements is None:
        return call.operation
    kind = call.dtypes[0] if len(call.dtypes) == 1 else "elements"
    return f"{call.operation} of {call.elements:,} {kind}"


def _groups(groups: list[HangGroup]) -> Table:
    rows = [
        [
            _title(group),
            ranges(group.ranks) or NOT_OBSERVED,
            str(group.completed),
            NOT_OBSERVED if group.stuck is None else str(group.stuck),
            CAUSES[group.cause],
        ]
        for group in groups
    ]
    return Table(
        "Groups, and how far their collectives came",
        ("group", "ranks", "completed by all", "hangs in", "why"),
        rows,
        frozenset({2, 3}),
        ["plain" if group.cause == "none" else "bad" for group in groups],
    )


def _pairs(pairs: list[Pair]) -> Table:
    rows = [
        [
            f"{pair.source} to {pair.target}",
            str(pair.sends),
            str(pair.receives),
            pair.group,
            NOT_OBSERVED if pair.line is None else line_place(pair.line),
        ]
        for pair in pairs
    ]
    return Table(
        "Unfinished sends and receives between two ranks",
        ("ranks", "sends", "receives", "group", "line"),
        rows,
        frozenset({1, 2}),
        names=frozenset({4}),
    )

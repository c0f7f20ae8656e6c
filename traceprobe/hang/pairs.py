"""Sends without their receive, and receives without their send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from traceprobe.hang.rank_view import RankView
from traceprobe.model.flight_record import Entry, GroupKey
from traceprobe.records.hang import Pair

_End = tuple[GroupKey, int, int]


def unmatched(views: Mapping[int, RankView]) -> list[Pair]:
    """Pairs of ranks, each with a dump, of which one has more unfinished sends than receives.

    Both sides of a message that arrived are done; so what is left over on one side has no partner.
    """
    sends: Counter[_End] = Counter()
    receives: Counter[_End] = Counter()
    lines: dict[tuple[str, _End], str | None] = {}
    for rank, view in views.items():
        for entry in view.point_to_point:
            source, target = _ends(entry)
            # Each end notes its own side only.
            counter, own = (sends, source) if entry.operation == "send" else (receives, target)
            if own == rank and source in views and target in views:
                counter[entry.group, source, target] += 1
                lines.setdefault((entry.operation, (entry.group, source, target)), entry.line)
    return [
        Pair(
            group=end[0].description or end[0].name,
            source=end[1],
            target=end[2],
            sends=sends[end],
            receives=receives[end],
            line=lines.get(("send" if sends[end] > receives[end] else "recv", end)),
        )
        for end in dict.fromkeys((*sends, *receives))
        if sends[end] != receives[end]
    ]


def _ends(entry: Entry) -> tuple[int, int]:
    """Source and target as ranks of the whole run."""
    ends = entry.peers or (-1, -1)
    ranks = entry.group.ranks
    if not ranks:
        return ends
    source, target = (ranks[end] if end < len(ranks) else -1 for end in ends)
    return source, target

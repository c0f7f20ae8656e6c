"""Idle gaps, grouped by why they are and between what: fifteen equal rows would say less."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceprobe.formatting import NOT_OBSERVED, clean, duration, percent, shorten
from traceprobe.model.taxonomy import CLASS_LABELS
from traceprobe.records.rank import Gap, Rank
from traceprobe.records.report import Input, Report
from traceprobe.render.document import Section, Table
from traceprobe.render.kernel_names import short_name

MAX_GROUPS = 12
MAX_EVIDENCE = 110
MAX_NEIGHBOUR = 60
MAX_FULL = 400
_HELP = (
    "A gap is a time in which the device does nothing. Its cause is what the host was doing then: "
    "waiting for data, inside a synchronising call, launching too late. Gaps of one cause between "
    "the same operations are one row. The name of a row opens to the whole names and to the "
    "longest gap: “starts at” counts from the report's time zero; “in the file” is the time stamp "
    "that the trace itself has, to look for in Perfetto (with the timestamp format “Trace ns”, in "
    "which 1 µs is 1000) or in nsys-ui."
)


class GapGroup(msgspec.Struct):
    """Gaps of one rank with one cause and the same neighbours, the longest first."""

    rank: Rank
    index: int
    gaps: list[Gap] = msgspec.field(default_factory=list)

    @property
    def total_ns(self) -> int:
        """Time of all of them."""
        return sum(gap.end_ns - gap.start_ns for gap in self.gaps)

    @property
    def longest(self) -> Gap:
        """The first of the longest."""
        return self.gaps[0]


def gap_groups(report: Report) -> list[GapGroup]:
    """The recorded gaps of all ranks, grouped; the groups with most time first."""
    found: dict[tuple[object, ...], GapGroup] = {}
    for index, rank in enumerate(report.ranks):
        for gap in sorted(rank.gaps, key=lambda gap: (gap.start_ns - gap.end_ns, gap.start_ns)):
            key = (index, gap.cause, gap.evidence, _short(gap.before), _short(gap.after))
            found.setdefault(key, GapGroup(rank, index)).gaps.append(gap)
    return sorted(found.values(), key=lambda group: (-group.total_ns, group.index))


def gaps_section(report: Report) -> Section | None:
    """A fold that says in its title which gaps take most; None where no gap was recorded."""
    groups = gap_groups(report)
    if not groups:
        return None
    count = sum(len(group.gaps) for group in groups)
    total = sum(group.total_ns for group in groups)
    causes: dict[str, int] = {}
    for group in groups:
        causes[group.longest.cause] = causes.get(group.longest.cause, 0) + group.total_ns
    most = max(causes, key=lambda cause: causes[cause])
    part = percent(causes[most] / total).replace(".0 %", " %")
    title = (
        f"Idle gaps: {duration(total)} in the {count} longest"
        if count > 1
        else f"Idle gaps: one of {duration(total)}"
    )
    return Section(
        "gaps",
        f"{title}, {part} {cause_word(most)}",
        blocks=[gaps_table(report, groups)],
        help=_HELP,
        folded=True,
    )


def gaps_table(report: Report, groups: Sequence[GapGroup]) -> Table:
    """A row for each group, of as many as a reader looks at."""
    several = len(report.ranks) > 1
    shown = groups[:MAX_GROUPS]
    rows = [
        [
            f"{_word(group.longest.before)} → {_word(group.longest.after)}",
            *([str(group.rank.rank)] if several else []),
            duration(group.total_ns),
            str(len(group.gaps)),
            duration(group.longest.end_ns - group.longest.start_ns),
            f"{cause_word(group.longest.cause)}: {shorten(group.longest.evidence, MAX_EVIDENCE)}",
        ]
        for group in shown
    ]
    caption = "Idle gaps by cause and by the operations around them, in the whole capture"
    if len(groups) > len(shown):
        rest = sum(len(group.gaps) for group in groups[MAX_GROUPS:])
        caption += f" ({rest} more gaps of {len(groups) - len(shown)} kinds in the embedded data)"
    head = ["between", *(["rank"] if several else []), "in all", "gaps", "longest", "cause"]
    return Table(
        caption,
        head,
        rows,
        frozenset(range(1, len(head) - 1)),
        names=frozenset({0}),
        full=[_full(group, report.inputs[group.rank.input]) for group in shown],
        show=[f"{g.index}:{g.longest.start_ns}-{g.longest.end_ns}" for g in shown],
    )


def cause_word(cause: str) -> str:
    """What a gap waits for."""
    return CLASS_LABELS.get(cause, clean(cause)).removeprefix("idle: ")


def _short(name: str | None) -> str | None:
    return None if name is None else short_name(name)


def _word(name: str | None) -> str:
    return NOT_OBSERVED if name is None else shorten(short_name(name), MAX_NEIGHBOUR)


def _full(group: GapGroup, source: Input) -> str:
    """Whole names, and where the longest gap is."""
    gap = group.longest
    of = "" if gap.iteration is None else f" of iteration {gap.iteration}"
    return "\n".join(
        [
            f"before: {shorten(gap.before or NOT_OBSERVED, MAX_FULL)}",
            f"after: {shorten(gap.after or NOT_OBSERVED, MAX_FULL)}",
            f"the longest{of} starts at {gap.start_ns / 1e6:,.3f} ms; in the file: "
            f"{in_file(source, gap.start_ns)}",
        ]
    )


def in_file(source: Input, time_ns: int) -> str:
    """A time of the report as the file writes it: µs in a Chrome trace, ns in an export of nsys."""
    stamp = int(source.origin_ns) - int(source.base_ns) + time_ns
    if source.format == "nsys":
        return f"{stamp} ns"
    return f"{stamp // 1000}.{stamp % 1000:03d} µs"

"""The critical path of a step: in a line, and as a section with what is on it and what is not."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import NOT_OBSERVED, percent, shorten, significant
from traceprobe.model.taxonomy import PATH_LABELS
from traceprobe.records.critical_path import Blocking, CriticalPath, Edges
from traceprobe.records.report import Report
from traceprobe.render.bars import number
from traceprobe.render.colours import OTHER_COLOUR, PATH_COLOURS
from traceprobe.render.document import Bar, Bars, Block, Facts, Piece, Section, Table, Text

TITLE = "What the step waits for"
NAME = "On the critical path"
LEAST = 0.05
"""Share of the step from which a part is named in a line."""
MAX_NAMED = 4
MAX_LINE = 80
MAX_PIECES = 10
"""Of the bar; the rest is one."""
MAX_ROWS = 12
MAX_NAME = 200
_HELP = (
    "The critical path is the chain of work and waiting that leads from the beginning of a step to "
    "its end: each piece of it begins when the one before has ended. A step gets shorter only "
    "where the path does; what is off it may even get longer. It is found by playing the recorded "
    "iterations again from their dependencies: launches, the order in a stream, events between "
    "streams, waits of the host, and collectives, which begin with the last rank and end together."
)
_SLACK = (
    "All work of a row could take that much longer together, and the step would take as long: "
    "making it faster gains nothing before the path has changed."
)
_BLOCKING = (
    "Exposed is not blocking. Communication is exposed while no kernel runs beside it on the same "
    "GPU; it blocks if the step would end sooner without it. Exposed communication blocks nothing "
    "where the host or another rank would be late anyway. “Blocking” is by how much sooner a step "
    "would end if the collectives of a row took no time; the rows need not add up."
)


def line(report: Report, *, brief: bool = False) -> list[Block]:
    """The largest parts of the path, and how much of communication blocks; without it, nothing.

    Args:
        brief: as much of it as fits a line of 80 columns, of several ranks two.
    """
    path = report.critical_path
    if not isinstance(path, CriticalPath):
        return []
    parts, more = _largest(path, _several(report)), _communication(path)
    if not parts:
        return []
    less = _work_less_ms(report, path)
    if less is not None:
        more = [f"the GPU's work alone takes {significant(less)} ms less", *more]
    told = [
        *("; ".join([", ".join(parts[:n]), *more]) for n in range(len(parts), 0, -1)),
        parts[0],
    ]
    room = MAX_LINE * (2 if _several(report) else 1) - len(f"{NAME}: ")
    found = [text for text in told if len(text) <= room] if brief else told
    return [Facts([(NAME, (found or told[-1:])[0])], spare=brief)]


def details(report: Report) -> list[Block]:
    """What a longer summary says below that line."""
    path = report.critical_path
    if not isinstance(path, CriticalPath):
        return []
    return [Text([*_without_profiler(path), edges_line(path.edges)])]


def section(report: Report) -> Section | None:
    """All of it; None for a report without one."""
    path = report.critical_path
    if not isinstance(path, CriticalPath) or not path.parts:
        return None
    return Section("path", TITLE, blocks=[*_blocks(report, path)], help=_HELP, brief=False)


def edges_line(edges: Edges) -> str:
    """Where the dependencies between streams come from."""
    every = edges.recorded + edges.inferred + edges.unresolved
    if not every:
        return "The trace has no dependencies between streams."
    told = f"{edges.recorded:,} dependencies between streams recorded, {edges.inferred:,} inferred"
    if edges.unresolved:
        share = percent(edges.unresolved / every)
        told += f", {edges.unresolved:,} waits not resolved ({share})"
    return f"{told}."


def _blocks(report: Report, path: CriticalPath) -> Iterator[Block]:
    several = _several(report)
    bar = Bar("", _pieces(path, several), f"{significant(path.step_ms)} ms a step")
    yield Bars("The critical path", "part of the step", [bar], relative=True)
    less = _work_less_ms(report, path)
    if less is not None:
        yield Text(
            [
                f"The GPU's work alone takes {significant(less)} ms less. Both are nearly as long: "
                "a step gets much shorter only where both do."
            ]
        )
    if path.operators:
        yield Section(
            "path-operators",
            f"Operators on the path: {len(path.operators)} with the most time",
            blocks=[_operators(path)],
            folded=True,
        )
    if path.slack:
        yield Section(
            "path-slack",
            "Off the path: what could get longer without making the step longer",
            text=[_SLACK],
            blocks=[_slack(path)],
            folded=True,
        )
    if path.blocking:
        found = "; ".join(_communication(path)).capitalize()
        yield Section(
            "path-blocking",
            found or "Communication that blocks",
            text=[_BLOCKING],
            blocks=[_collectives(path.blocking)],
            folded=True,
        )
    yield Text([" ".join([*_without_profiler(path), edges_line(path.edges)])])


def _several(report: Report) -> bool:
    return len(report.ranks) > 1


def _label(part: str) -> str:
    return PATH_LABELS.get(part, part)


def _largest(path: CriticalPath, several: bool) -> list[str]:
    """Such as “41 % backward (rank 1)”."""
    shares = [(part, part.ms / path.step_ms) for part in path.parts] if path.step_ms > 0 else []
    return [
        f"{percent(share, 0)} {_label(part.part)}" + (f" (rank {part.rank})" if several else "")
        for part, share in sorted(shares, key=lambda found: -found[1])[:MAX_NAMED]
        if share >= LEAST
    ]


def _work_less_ms(report: Report, path: CriticalPath) -> float | None:
    """What the GPU's work alone would be shorter by than a path that is mostly the host's.

    None where it is shorter by so much that the step is bound by its host. Below that the verdict
    may be the work, and the path the host's, which is the longer of two that are nearly as long.
    """
    host = sum(part.ms for part in path.parts if part.part == "host")
    most = report.verdict.thresholds.get("bound", 0.0) * path.step_ms
    near = [slack for slack in path.slack if slack.slack_ms <= most and slack.part != "host"]
    busy = [sum(s.busy_ms for s in near if s.rank == rank) for rank in {s.rank for s in near}]
    if not near or 2 * min(host, max(busy)) < path.step_ms:
        return None
    return min(slack.slack_ms for slack in near)


def _communication(path: CriticalPath) -> list[str]:
    busy = sum(kind.busy_ms for kind in path.blocking)
    if path.blocking_ms is None or not busy:
        return []
    blocking = significant(path.blocking_ms)
    of = f" of its {significant(busy)}" if path.blocking_ms <= busy else ""
    return [f"communication blocks {blocking}{of} ms"]


def _pieces(path: CriticalPath, several: bool) -> list[Piece]:
    parts = sorted(path.parts, key=lambda part: -part.ms)
    shown, rest = parts[:MAX_PIECES], sum(part.ms for part in parts[MAX_PIECES:])
    pieces = [
        Piece(
            _label(part.part) + (f", rank {part.rank}" if several else ""),
            PATH_COLOURS.get(part.part, OTHER_COLOUR),
            part.ms,
            f"{significant(part.ms)} ms",
        )
        for part in shown
    ]
    if rest > 0:
        pieces.append(Piece("the rest", OTHER_COLOUR, rest, f"{significant(rest)} ms"))
    return pieces


def _operators(path: CriticalPath) -> Table:
    whole = path.step_ms if path.step_ms > 0 else 1.0
    rows = [
        [
            shorten(found.operator, MAX_NAME),
            _label(found.part),
            str(found.rank),
            significant(found.ms),
            percent(found.ms / whole),
        ]
        for found in path.operators[:MAX_ROWS]
    ]
    head = ["operator", "part", "rank", "ms", "of the step"]
    caption = "Operators on the critical path"
    return Table(caption, head, rows, frozenset({2, 3, 4}), names=frozenset({0}))


def _slack(path: CriticalPath) -> Table:
    rows = [
        [_label(s.part), str(s.rank), significant(s.busy_ms), significant(s.slack_ms)]
        for s in sorted(path.slack, key=lambda s: -s.busy_ms)[:MAX_ROWS]
    ]
    head = ["part", "rank", "busy, ms", "could get longer by, ms"]
    return Table("Slack off the critical path", head, rows, frozenset({1, 2, 3}))


def _collectives(blocking: list[Blocking]) -> Table:
    rows = [
        [
            str(kind.group) if kind.group >= 0 else NOT_OBSERVED,
            significant(kind.bytes / 1e6) if kind.bytes >= 0 else NOT_OBSERVED,
            number(kind.count_per_step),
            significant(kind.busy_ms),
            significant(kind.blocking_ms),
        ]
        for kind in sorted(blocking, key=lambda kind: (-kind.blocking_ms, -kind.busy_ms))[:MAX_ROWS]
    ]
    head = ["process group", "MB", "per step", "busy, ms", "blocking, ms"]
    return Table("Communication by size", head, rows, frozenset({1, 2, 3, 4}))


def _without_profiler(path: CriticalPath) -> list[str]:
    if path.host_factor >= 0.995:
        return []
    own = f"{percent(path.host_factor, 0)} of the host's recorded time"
    return [f"{own} is the program's own; the rest is the profiler's."]

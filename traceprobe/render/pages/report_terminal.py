"""The report in a terminal: verdict, the bar that decides it and the three most urgent findings.

Works without colour, down to 40 columns and in encodings that know ASCII only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.text import Text

from traceprobe.formatting import duration, encodable, shorten, significant
from traceprobe.model.taxonomy import BOUND_LABELS, STATUS_LABELS, label_of
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding, Report
from traceprobe.render.bars import Segment, partition_bar, share_bar
from traceprobe.render.colours import STATUS_SHAPES
from traceprobe.render.console import collected, console
from traceprobe.render.next_step import next_command
from traceprobe.render.pages import memory_parts as memory_text
from traceprobe.render.pages.ablation import shares_line, title
from traceprobe.render.pages.report_tables import collectives_lines, steps_divisor
from traceprobe.render.pages.roofline import lines as roofline_lines
from traceprobe.render.ranking import ATTENTION, ranked_findings
from traceprobe.verdict import agreement

MAX_FINDINGS = 3
MAX_RANKS = 8
MAX_CLASSES = 6
MAX_PROSE = 400
MAX_BAR = 60

_FILLS = {"io": "█", "communication": "▓", "overhead": "▒", "compute": "░", "other": "·"}
"""One glyph a share, so that the bar reads without colour."""
_STYLES = {
    "io": "red",
    "communication": "magenta",
    "overhead": "yellow",
    "compute": "blue",
    "other": "bright_black",
}
_STATUS_STYLES = {"fail": "red", "warn": "yellow"}

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def render(
    report: Report,
    width: int,
    color: bool,
    encoding: str = "utf-8",
    paths: Sequence[str] = (),
) -> str:
    """The summary in lines of at most `width` columns, all of it encodable in `encoding`.

    Args:
        paths: where the inputs are, for commands that the reader may copy.
    """
    printed = console(width, color=color)
    lines = [
        *_verdict(report, printed.width),
        *_ablation(report),
        *_ranks(report),
        *_roofline(report),
        *_memory(report),
        *_findings(report),
        *_warnings(report),
        *_next(report, paths),
    ]
    for line in lines:
        pieces = [(encodable(text, encoding), style) for text, style in line]
        printed.print(Text.assemble(*pieces), overflow="fold")
    return collected(printed)


def _verdict(report: Report, width: int) -> list[Line]:
    verdict = report.verdict
    title = BOUND_LABELS[verdict.bound]
    if verdict.secondary:
        title += f", then {shorten(label_of(verdict.secondary), 60)}"
    lines: list[Line] = [
        [(title, "bold"), (f"  confidence {100 * verdict.confidence:.0f} %", "")],
        [(shorten(verdict.headline, MAX_PROSE), "")],
        [],
    ]
    shares = share_bar(verdict.shares)
    if shares:
        lines += [_bar(shares, min(width, MAX_BAR)), *map(_share, shares)]
        lines += [[(f"  {'sum':<15}{'100.0 %':>8}", "")], []]
    lines += [[("missing: ", "bold"), (shorten(item, MAX_PROSE), "")] for item in verdict.missing]
    return lines


def _ablation(report: Report) -> list[Line]:
    """Whether an ablation says the same, and its shares."""
    if report.ablation is None:
        return []
    compared = agreement.compare(report.verdict, report.ablation)
    words = compared.words
    if compared.state == "disagree":  # a warning below has the numbers
        words = f"{title(report.ablation)}; the trace disagrees"
    return [
        [("by ablation: ", "bold"), (words, "")],
        [(shares_line(report.ablation), "")],
        [],
    ]


def _bar(shares: list[Segment], width: int) -> Line:
    """One line of `width` cells; rounding the ends instead of the lengths keeps it that long."""
    ends = [round((s.start + s.width) / 100 * width) for s in shares]
    starts = [0, *ends[:-1]]
    return [
        (_FILLS[s.key] * (end - start), _STYLES[s.key])
        for s, start, end in zip(shares, starts, ends, strict=True)
    ]


def _share(share: Segment) -> Line:
    return [(_FILLS[share.key], _STYLES[share.key]), (f" {share.word:<15}{share.percent:>8}", "")]


def _ranks(report: Report) -> list[Line]:
    lines: list[Line] = []
    for rank in report.ranks[:MAX_RANKS]:
        lines.append([(f"rank {rank.rank}: ", "bold"), (_step(rank), "")])
        largest = sorted(partition_bar(rank.summary.partition_ns), key=lambda s: -s.value)
        divisor = steps_divisor(rank)
        shown = MAX_CLASSES if len(report.ranks) == 1 else 1
        lines += [
            [(f"{s.word:<23}{s.percent:>7}{duration(s.value / divisor):>10}", "")]
            for s in largest[:shown]
        ]
    if len(report.ranks) > MAX_RANKS:
        lines.append([(f"… and {len(report.ranks) - MAX_RANKS} more ranks", "")])
    run = report.run
    if run is not None and run.straggler_rank is not None:
        wait = f"the others wait for rank {run.straggler_rank}: {duration(run.skew_ns)} a step"
        lines.append([(wait, "")])
    lines += [[(shorten(line, MAX_PROSE), "")] for line in collectives_lines(report)]
    return [*lines, []] if lines else []


def _memory(report: Report) -> list[Line]:
    said = memory_text.line(report.memory)
    return [] if said is None else [[("memory: ", "bold"), (shorten(said, MAX_PROSE), "")], []]


def _roofline(report: Report) -> list[Line]:
    if isinstance(report.roofline, msgspec.UnsetType):
        return []
    told = [*roofline_lines(report.roofline), *report.roofline.notes[:1]]
    return [*([(shorten(line, MAX_PROSE), "")] for line in told), []] if told else []


def _step(rank: Rank) -> str:
    step = rank.summary.step_ms
    if step is None:
        return f"{duration(rank.summary.window_ns)} captured, no steps"
    return (
        f"{significant(step.mean)} ms a step (median {significant(step.p50)},"
        f" p10 {significant(step.p10)}, p90 {significant(step.p90)}),"
        f" {rank.summary.iterations_used} of {rank.iteration_count} iterations"
    )


def _findings(report: Report) -> list[Line]:
    findings = ranked_findings(report.findings)
    shown = [f for f in findings if f.status in ATTENTION][:MAX_FINDINGS]
    lines = [line for finding in shown for line in _finding(finding)]
    rest = len(findings) - len(shown)
    return [*lines, [(f"{rest} further findings", "")]] if rest else lines


def _finding(finding: Finding) -> list[Line]:
    style = _STATUS_STYLES[finding.status]
    mark = f"{STATUS_SHAPES[finding.status]} {STATUS_LABELS[finding.status]}: "
    title: Line = [(mark, style), (shorten(finding.title, MAX_PROSE), "bold")]
    if finding.saving_ms_per_step is not None:
        title.append((f", up to {significant(finding.saving_ms_per_step)} ms per step", ""))
    return [title, [(shorten(finding.advice, MAX_PROSE), "")]] if finding.advice else [title]


def _next(report: Report, paths: Sequence[str]) -> list[Line]:
    found = next_command(report, paths)
    if found is None:
        return []
    command, purpose = found
    return [[], [("next: ", "bold"), (command, "")], [(f"      {purpose}", "")]]


def _warnings(report: Report) -> list[Line]:
    return [
        [("note: ", "yellow"), (shorten(warning.message, MAX_PROSE), "")]
        for warning in report.quality.warnings
    ]

"""A report in short: the paragraphs of its Markdown and of its summary in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UnsetType

from traceprobe.findings.first_fixes import first_fixes
from traceprobe.formatting import counted, duration, first_sentences, percent, significant
from traceprobe.model.taxonomy import label_of
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.report import Finding, Report
from traceprobe.records.summary import StepTimes
from traceprobe.render.bars import Segment, partition_bar, segments, share_bar
from traceprobe.render.document import Bars, Block, Code, Facts, Findings, Section, Text
from traceprobe.render.next_step import next_command
from traceprobe.render.pages import ablation as ablation_page
from traceprobe.render.pages import causal as causal_page
from traceprobe.render.pages import memory, report_headroom, report_path, roofline
from traceprobe.render.pages.report_tables import collectives_lines
from traceprobe.render.savings import saving, together
from traceprobe.verdict import agreement, second_opinion
from traceprobe.verdict.finding_order import ATTENTION
from traceprobe.verdict.no_training import why_no_training
from traceprobe.verdict.wording import how_sure

MAX_EVIDENCE = 3
MAX_FIRST = 180
"""Characters of the first advice."""
_MISLEADING = (
    "busy-machine",
    "calls-unrecorded",
    "inference",
    "inference-server",
    "missing-pages",
    "truncated-file",
    "truncated-steps",
    "unfinished-write",
)
"""Codes of warnings without which all else would mislead."""
ITEM = "-"
"""Before each sentence of a list."""
MAX_MARKDOWN_RANKS = 4
MAX_RANKS = 8
MAX_CLASSES = 6
"""Classes of the only rank in a terminal; of one of several the largest is named."""

Paragraphs = list[list[Block]]


def markdown(report: Report) -> Paragraphs:
    """The first fix, the shares, and folded what else fits an issue comment."""
    first = misleading(report)
    warnings = [w.message for w in report.quality.warnings if w.message not in first]
    fixes = first_fixes(report)
    details: list[Block] = [
        Text(list(_verdict_lines(report)), ITEM),
        Text(_ablation_lines(report), ITEM),
        Text(_probe_lines(report), ITEM),
        Text(list(_rank_lines(report)), ITEM),
        *_roofline(report),
        Text(memory.lines(report.memory), ITEM),
        Text(warnings, "⚠"),
    ]
    return _filled(
        [
            [Text(first, "⚠")],
            [Facts([("Try first", _first(fixes[0]))])] if fixes else [],
            [Text(report_headroom.sentences(report))],
            [*_shares(report), *report_path.line(report)],
            [Section("", "What to try", blocks=[_together(report, fixes)])] if fixes else [],
            [Section("", "Details", blocks=[block for [block] in _filled([[b] for b in details])])],
        ]
    )


def _first(fix: Finding) -> str:
    saves = f" That saves {saving(fix)}." if saving(fix) else ""
    return first_sentences(fix.advice, MAX_FIRST) + saves


def terminal(report: Report, paths: Sequence[str] | None = ()) -> Paragraphs:
    """The shares, what to do first, and, where there is room, the command to run next.

    Args:
        paths: where the inputs are, for that command; None where nobody knows.
    """
    return _filled(
        [
            [
                *_shares(report),
                *report_path.line(report, brief=True),
                *_ablation(report)[:1],
                *_probes(report)[:1],
                Text(_straggler(report)[:1] if _skewed(report) else []),
                Text(misleading(report), "note:", "unclear"),
            ],
            [Text(report.verdict.missing[1:], ITEM)],
            [*_fixes(report), Text(report_headroom.sentences(report))],
            [*_next(report, paths), Text([_more(report)])],
        ]
    )


def misleading(report: Report) -> list[str]:
    """What to know before the verdict: what the trace is of, or that the machine was busy."""
    return [w.message for w in report.quality.warnings if w.code in _MISLEADING]


def verbose(report: Report, paths: Sequence[str] | None = ()) -> Paragraphs:
    """All that a terminal shows: also ranks, the evidence, further findings and warnings."""
    warnings = [warning.message for warning in report.quality.warnings]
    fixes = first_fixes(report)
    others = [finding for finding in report.findings if finding not in fixes]
    return _filled(
        [
            [*_shares(report), *report_path.line(report), *report_path.details(report)],
            [Text(report.verdict.missing[1:], "missing:"), Text(report.verdict.reasons, ITEM)],
            [*_fixes(report), Text(report_headroom.sentences(report))],
            [Text(_floors(report), ITEM)],
            _ablation(report),
            _probes(report),
            [*_ranks(report), Text(collectives_lines(report))],
            _roofline(report),
            [Text(memory.lines(report.memory), "memory:")],
            [Text(["Then:"] if _asking(others) else []), Findings(others)],
            [Text(warnings, "note:", "unclear")],
            _next(report, paths),
        ]
    )


def _fixes(report: Report) -> list[Block]:
    fixes = first_fixes(report)
    if fixes:
        return [Text(["Try first:"]), _together(report, fixes)]
    if report.verdict.bound == "inconclusive":  # its headline says what to do
        return []
    return [Text(["No check found a change that is worth making."])]


def _together(report: Report, fixes: list[Finding]) -> Findings:
    return Findings(fixes, together=together(report, fixes))


def _floors(report: Report) -> list[str]:
    """Why a step cannot be shorter."""
    if isinstance(report.headroom, msgspec.UnsetType):
        return []
    return [
        f"no step is shorter than {significant(floor.ms)} ms: {floor.why}"
        for floor in report.headroom.floors
    ]


def _next(report: Report, paths: Sequence[str] | None) -> list[Block]:
    found = None if paths is None else next_command(report, paths)
    if not found:
        return []
    command, purpose = found
    return [Code(f"next, {purpose}:\n  {command}", spare=True)]


def _more(report: Report) -> str:
    """What a longer summary shows; checks that found nothing are not counted."""
    fixes = first_fixes(report)
    others = [found for found in report.findings if found not in fixes]
    asking = sum(found.status in ATTENTION for found in others)
    counts = [(asking, "other finding"), (len(report.quality.warnings), "note")]
    words = [counted(count, word) for count, word in counts if count]
    return f"more with -v: {', '.join(['ranks', 'reasons', *words])}"


def _filled(paragraphs: Paragraphs) -> Paragraphs:
    """Those that say anything."""

    def says(block: Block) -> bool:
        match block:
            case Text():
                return bool(block.sentences)
            case Findings():
                return bool(block.findings)
        return True

    kept = ([block for block in paragraph if says(block)] for paragraph in paragraphs)
    return [paragraph for paragraph in kept if paragraph]


def _shares(report: Report) -> list[Block]:
    if not report.verdict.shares or why_no_training(report.ranks, report.quality):
        return []
    bar = share_bar("", report.verdict.shares)
    return [Bars("Shares of the step", "share of the step", [bar], relative=True)]


def _roofline(report: Report) -> list[Block]:
    if isinstance(report.roofline, msgspec.UnsetType):
        return []
    # What a peak is missing for matters where the kernels are what the step takes.
    notes = report.roofline.notes[:1] if report.verdict.bound == "compute" else []
    return [Text([*roofline.lines(report.roofline), *notes])]


def _verdict_lines(report: Report) -> Iterator[str]:
    verdict = report.verdict
    for item in verdict.missing[1:MAX_EVIDENCE]:
        yield f"missing: {item}"
    yield from verdict.reasons[:MAX_EVIDENCE]
    if how_sure(verdict):
        yield how_sure(verdict)


def _ablation_lines(report: Report) -> list[str]:
    """What an ablation says, in at most eight lines."""
    ablation = report.ablation
    if ablation is None:
        return []
    overlap = ablation_page.overlap_sentence(ablation)
    missing = [f"{names} ({why})" for names, why in ablation_page.absences(ablation)]
    return [
        f"checked by ablation: {agreement.compare(report.verdict, ablation).words}",
        f"shares by ablation (95 % interval): {ablation_page.shares_line(ablation)}",
        f"ms a step by ablation: {ablation_page.steps_line(ablation)}",
        *([overlap] if overlap else []),
        *([f"not measured: {'; '.join(missing)}"] if missing else []),
    ]


def _ablation(report: Report) -> list[Block]:
    """Whether an ablation says the same, and its shares."""
    if report.ablation is None:
        return []
    compared = agreement.compare(report.verdict, report.ablation)
    words = compared.words
    if compared.state == "disagree":  # a warning below has the numbers
        words = f"{ablation_page.title(report.ablation)}; the trace disagrees"
    shares = ablation_page.shares_line(report.ablation)
    return [Text([words], "by ablation:"), Text([shares])]


def _rank_lines(report: Report) -> Iterator[str]:
    """A line for each of the first ranks, who waits for whom, and what is sent."""
    for rank in report.ranks[:MAX_MARKDOWN_RANKS]:
        classes = ", ".join(
            f"{s.word} {s.text} ({s.note})" for s in _largest(rank)[:MAX_MARKDOWN_RANKS]
        )
        communication = rank.summary.communication
        if communication is not None:
            classes += f"; {percent(communication.overlap_pct / 100)} of communication hidden"
        step = rank.summary.step_ms
        time = (
            f"{significant(step.mean)} ms a step ({_spread(step)}, {_used(rank)})"
            if step is not None
            else _step(rank)
        )
        yield f"rank {rank.rank}: {time}; {classes or 'nothing measured'}"
    if len(report.ranks) > MAX_MARKDOWN_RANKS:
        yield f"… and {len(report.ranks) - MAX_MARKDOWN_RANKS} more ranks"
    yield from _straggler(report)
    yield from collectives_lines(report)


def _ranks(report: Report) -> Iterator[Block]:
    shown = MAX_CLASSES if len(report.ranks) == 1 else 1
    for rank in report.ranks[:MAX_RANKS]:
        yield Text([_step(rank)], f"rank {rank.rank}:")
        rows = [f"{s.word:<23}{s.text:>7}{s.note:>10}" for s in _largest(rank)[:shown]]
        yield Code("\n".join(rows))
    if len(report.ranks) > MAX_RANKS:
        yield Text([f"… and {len(report.ranks) - MAX_RANKS} more ranks"])
    yield Text(_straggler(report))


def _skewed(report: Report) -> bool:
    """Whether waiting for other ranks is worth a line."""
    skew, thresholds = report.verdict.skew, report.verdict.thresholds
    return skew is not msgspec.UNSET and skew >= thresholds.get("notable", 0.0)


def _asking(findings: Sequence[Finding]) -> bool:
    return any(finding.status in ATTENTION for finding in findings)


def _straggler(report: Report) -> list[str]:
    """Which rank the others wait for, and how long of which step."""
    run = report.run
    if run is None or run.straggler_rank is None:
        return []
    known = run.straggler_cause not in (None, "other")
    cause = f" ({label_of(run.straggler_cause or '')})" if known else ""
    waits = f"the others wait for rank {run.straggler_rank}{cause}"
    # The window of a rank that is late begins when it is there, so that its steps may be shorter.
    others = [rank for rank in report.ranks if rank.rank != run.straggler_rank]
    step_ms, effect = mean_step_ms(others), report.quality.observer_effect
    if not isinstance(run.unseen_skew_ms, UnsetType):
        unprofiled_ms = None if effect is None else effect.unprofiled_step_ms
        time = f"{significant(run.unseen_skew_ms)} ms"
        waits += f": {_of_step(time, unprofiled_ms)}, without the profiler alone"
    elif not isinstance(run.straggler_wait_ns, UnsetType):
        waits += f": {_of_step(duration(run.straggler_wait_ns), step_ms)}"
    of = " in the capture" if mean_step_ms(report.ranks) is None else " a step"
    return [waits, f"transfer of all: {duration(run.transfer_ns)}{of}"]


def _of_step(time: str, step_ms: float | None) -> str:
    """A time per step, with the length of the step where there are steps, ms."""
    if step_ms is None:
        return f"{time} in the capture"
    return f"{time} of each {duration(1e6 * step_ms)} step"


def _largest(rank: Rank) -> list[Segment]:
    """The classes of a rank, largest first; the notes have the time per step."""
    bar = partition_bar("", rank.summary.partition_ns, rank.summary.steps)
    return sorted(segments(bar), key=lambda segment: -segment.value)


def _step(rank: Rank) -> str:
    step = rank.summary.step_ms
    if step is None:
        return f"{duration(rank.summary.window_ns)} captured, no steps"
    return f"{significant(step.mean)} ms a step ({_spread(step)}), {_used(rank)}"


def _spread(step: StepTimes) -> str:
    return (
        f"median {significant(step.p50)}, p10 {significant(step.p10)}, p90 {significant(step.p90)}"
    )


def _used(rank: Rank) -> str:
    return f"{rank.summary.iterations_used} of {counted(rank.iteration_count, 'iteration')}"


def _probe_lines(report: Report) -> list[str]:
    """What probes say, in at most two lines."""
    if isinstance(report.causal, msgspec.UnsetType):
        return []
    return [
        f"checked by probes: {second_opinion.compare(report.verdict, report.causal).words}",
        f"ms of a step for one of delay: {causal_page.line(report.causal)}",
    ]


def _probes(report: Report) -> list[Block]:
    """What the step waits for by probes, and all slopes."""
    if isinstance(report.causal, msgspec.UnsetType):
        return []
    compared = second_opinion.compare(report.verdict, report.causal)
    words = causal_page.title(report.causal)
    if compared.state == "disagree":
        words += "; the trace disagrees"
    return [Text([words], "by probes:"), Text([causal_page.line(report.causal)])]

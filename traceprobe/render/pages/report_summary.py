"""A report in short: the paragraphs of its Markdown and of its summary in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from traceprobe.formatting import duration, percent, shorten, signed, significant
from traceprobe.model.taxonomy import label_of
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.summary import StepTimes
from traceprobe.render.bars import Segment, partition_bar, segments, share_bar
from traceprobe.render.document import Bars, Block, Code, Findings, Text
from traceprobe.render.next_step import next_command
from traceprobe.render.pages import ablation as ablation_page
from traceprobe.render.pages import memory, roofline
from traceprobe.render.pages.report_tables import collectives_lines
from traceprobe.verdict import agreement

MAX_EVIDENCE = 3
MAX_TERMS = 8
MAX_MARKDOWN_RANKS = 4
MAX_RANKS = 8
MAX_CLASSES = 6
"""Classes of the only rank in a terminal; of one of several the largest is named."""

Paragraphs = list[list[Block]]


def markdown(report: Report) -> Paragraphs:
    """Verdict, ablation, a line for each rank, findings, warnings: what fits an issue comment."""
    warnings = [warning.message for warning in report.quality.warnings]
    more = len(warnings) - MAX_EVIDENCE
    paragraphs: Paragraphs = [
        _shares(report),
        [Text(list(_verdict_lines(report)))],
        [Text(_ablation_lines(report))],
        [Text(list(_rank_lines(report)))],
        _roofline(report),
        [Text(memory.lines(report.memory))],
        [Findings(report.findings)] if report.findings else [],
        [
            Text(warnings[:MAX_EVIDENCE], "⚠"),
            Text([f"… {more} more warnings"] if more > 0 else []),
        ],
    ]
    return _filled(paragraphs)


def terminal(report: Report, paths: Sequence[str] = ()) -> Paragraphs:
    """Verdict, ranks, the most urgent findings, and the command that a reader would want next.

    Args:
        paths: where the inputs are, for that command.
    """
    found = next_command(report, paths)
    warnings = [warning.message for warning in report.quality.warnings]
    paragraphs: Paragraphs = [
        _shares(report),
        [Text(report.verdict.missing, "missing:")],
        _ablation(report),
        [*_ranks(report), Text(collectives_lines(report))],
        _roofline(report),
        [Text(memory.lines(report.memory), "memory:")],
        [Findings(report.findings), Text(warnings, "note:", "unclear")],
        [Code(f"next: {found[0]}\n      {found[1]}")] if found else [],
    ]
    return _filled(paragraphs)


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
    if not report.verdict.shares:
        return []
    bar = share_bar("", report.verdict.shares)
    return [Bars("Shares of the step", "share of the step", [bar], relative=True)]


def _roofline(report: Report) -> list[Block]:
    if isinstance(report.roofline, msgspec.UnsetType):
        return []
    return [Text([*roofline.lines(report.roofline), *report.roofline.notes[:1]])]


def _verdict_lines(report: Report) -> Iterator[str]:
    verdict = report.verdict
    for item in verdict.missing[:MAX_EVIDENCE]:
        yield f"missing: {item}"
    yield from verdict.reasons[:MAX_EVIDENCE]
    terms = [f"{shorten(t.name, 40)} {signed(t.value)}" for t in verdict.confidence_terms]
    named = f": {', '.join(terms[:MAX_TERMS])}" if terms else ""
    yield f"confidence {verdict.confidence:.0%}{named}"


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
    run = report.run
    if run is not None and run.straggler_rank is not None:
        cause = f" ({label_of(run.straggler_cause)})" if run.straggler_cause else ""
        yield (
            f"the others wait for rank {run.straggler_rank}{cause}: {duration(run.skew_ns)} a "
            f"step, beside {duration(run.transfer_ns)} of transfer"
        )
    yield from collectives_lines(report)


def _ranks(report: Report) -> Iterator[Block]:
    shown = MAX_CLASSES if len(report.ranks) == 1 else 1
    for rank in report.ranks[:MAX_RANKS]:
        yield Text([_step(rank)], f"rank {rank.rank}:")
        rows = [f"{s.word:<23}{s.text:>7}{s.note:>10}" for s in _largest(rank)[:shown]]
        yield Code("\n".join(rows))
    if len(report.ranks) > MAX_RANKS:
        yield Text([f"… and {len(report.ranks) - MAX_RANKS} more ranks"])
    run = report.run
    if run is not None and run.straggler_rank is not None:
        text = f"the others wait for rank {run.straggler_rank}: {duration(run.skew_ns)} a step"
        yield Text([text])


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
    return f"{rank.summary.iterations_used} of {rank.iteration_count} iterations"

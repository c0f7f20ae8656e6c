"""The report as Markdown for an issue comment: at most 60 lines, far below 65,536 characters.

Names from a trace cannot become markup, mentions, links or issue references: see `gfm`.
"""

from __future__ import annotations

import msgspec

from traceprobe.formatting import duration, percent, signed, significant
from traceprobe.model.taxonomy import BOUND_LABELS, STATUS_LABELS, label_of
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding, Report
from traceprobe.render.bars import Segment, partition_bar, share_bar
from traceprobe.render.colours import STATUS_SHAPES
from traceprobe.render.gfm import in_html, literal, prose
from traceprobe.render.pages import ablation as ablation_text
from traceprobe.render.pages import memory_parts as memory_text
from traceprobe.render.pages.report_tables import collectives_lines, steps_divisor
from traceprobe.render.pages.roofline import lines as roofline_lines
from traceprobe.render.ranking import ATTENTION, ranked_findings
from traceprobe.verdict import agreement

MAX_LINES = 60
MAX_EVIDENCE = 3
MAX_RANKS = 4
MAX_TERMS = 8
MAX_CHECKED = 400
"""Characters of a line about the ablation, of which there are few."""
BAR_WIDTH = 24


def render(report: Report) -> str:
    """The Markdown of `report`, ending in a newline; what does not fit is counted, not dropped."""
    before = [
        *_verdict(report),
        *_ablation(report),
        *_times(report),
        *_roofline(report),
        *_memory(report),
    ]
    after = _provenance(report)
    lines = [*before, *_findings(report, MAX_LINES - len(before) - len(after)), *after]
    return "\n".join(lines) + "\n"


def _verdict(report: Report) -> list[str]:
    verdict = report.verdict
    title = f"### {BOUND_LABELS[verdict.bound]}"
    if verdict.secondary:
        title += f", then {literal(label_of(verdict.secondary))}"
    lines = [title, "", prose(verdict.headline), ""]
    shares = share_bar(verdict.shares)
    if shares:
        lines += ["| share of the step | | |", "|---|--:|:--|", *map(_share_row, shares)]
        lines += ["| sum | 100.0 % | |", ""]
    lines += [f"- missing: {prose(item)}" for item in verdict.missing[:MAX_EVIDENCE]]
    lines += [f"- {prose(item)}" for item in verdict.reasons[:MAX_EVIDENCE]]
    terms = ", ".join(
        f"{literal(t.name, 40)} {signed(t.value)}" for t in verdict.confidence_terms[:MAX_TERMS]
    )
    lines += [f"- confidence {verdict.confidence:.0%}" + (f": {terms}" if terms else ""), ""]
    return lines


def _share_row(segment: Segment) -> str:
    blocks = "█" * round(segment.width / 100 * BAR_WIDTH) or ("▏" if segment.width >= 0.05 else "")
    return f"| {literal(segment.word)} | {segment.percent} | {blocks} |"


def _ablation(report: Report) -> list[str]:
    """What an ablation says, in at most eight lines."""
    ablation = report.ablation
    if ablation is None:
        return []
    told = ablation_text.overlap_sentence(ablation)
    missing = [f"{names} ({why})" for names, why in ablation_text.absences(ablation)]
    said = [
        f"checked by ablation: {agreement.compare(report.verdict, ablation).words}",
        f"shares by ablation (95 % interval): {ablation_text.shares_line(ablation)}",
        f"ms a step by ablation: {ablation_text.steps_line(ablation)}",
        *([told] if told else []),
        *([f"not measured: {'; '.join(missing)}"] if missing else []),
    ]
    return [*(f"- {prose(line, MAX_CHECKED)}" for line in said), ""]


def _times(report: Report) -> list[str]:
    lines = [_rank_line(rank) for rank in report.ranks[:MAX_RANKS]]
    if len(report.ranks) > MAX_RANKS:
        lines.append(f"- … and {len(report.ranks) - MAX_RANKS} more ranks")
    run = report.run
    if run is not None and run.straggler_rank is not None:
        cause = f" ({literal(label_of(run.straggler_cause))})" if run.straggler_cause else ""
        lines.append(
            f"- the others wait for rank {run.straggler_rank}{cause}:"
            f" {duration(run.skew_ns)} a step, beside {duration(run.transfer_ns)} of transfer"
        )
    lines += [f"- {prose(line)}" for line in collectives_lines(report)]
    return [*lines, ""] if lines else []


def _memory(report: Report) -> list[str]:
    said = memory_text.line(report.memory)
    return [] if said is None else [f"- {prose(said)}", ""]


def _roofline(report: Report) -> list[str]:
    if isinstance(report.roofline, msgspec.UnsetType):
        return []
    told = [*roofline_lines(report.roofline), *report.roofline.notes[:1]]
    return [*(f"- {prose(line)}" for line in told), ""] if told else []


def _rank_line(rank: Rank) -> str:
    summary = rank.summary
    if summary.step_ms is not None:
        step = summary.step_ms
        time = (
            f"{significant(step.mean)} ms a step (median {significant(step.p50)},"
            f" p10 {significant(step.p10)}, p90 {significant(step.p90)},"
            f" {summary.iterations_used} of {rank.iteration_count} iterations)"
        )
    else:
        time = f"{duration(summary.window_ns)} captured, no steps"
    largest = sorted(partition_bar(summary.partition_ns), key=lambda s: -s.value)[:4]
    divisor = steps_divisor(rank)
    classes = ", ".join(
        f"{literal(s.word)} {s.percent} ({duration(s.value / divisor)})" for s in largest
    )
    if summary.communication is not None:
        classes += f"; {percent(summary.communication.overlap_pct / 100)} of communication hidden"
    return f"- rank {rank.rank}: {time}; {classes or 'nothing measured'}"


def _findings(report: Report, room: int) -> list[str]:
    """The most urgent findings, whole, in at most `room` lines."""
    findings = ranked_findings(report.findings)
    lines: list[str] = []
    shown: list[Finding] = []
    for finding in findings:
        added = _finding(finding)
        if finding.status not in ATTENTION or len(lines) + len(added) + 2 > room:
            break
        lines += added
        shown.append(finding)
    rest = findings[len(shown) :]
    counts = {status: sum(f.status == status for f in rest) for status in STATUS_LABELS}
    words = ", ".join(f"{n} {STATUS_LABELS[status]}" for status, n in counts.items() if n)
    return [*lines, f"Further findings: {words}.", ""] if words else lines


def _finding(finding: Finding) -> list[str]:
    saving = finding.saving_ms_per_step
    up_to = f", up to {significant(saving)} ms per step" if saving is not None else ""
    status = f"{STATUS_SHAPES[finding.status]} {STATUS_LABELS[finding.status]}"
    title = in_html(finding.title)
    lines = [f"<details><summary>{status}: {title}{up_to}</summary>", ""]
    lines += [f"- {prose(item)}" for item in finding.evidence[:MAX_EVIDENCE]]
    if len(finding.evidence) > MAX_EVIDENCE:
        lines.append(f"- … {len(finding.evidence) - MAX_EVIDENCE} more")
    if finding.advice:
        lines.append(f"- what to try: {prose(finding.advice)}")
    return [*lines, "", "</details>", ""]


def _provenance(report: Report) -> list[str]:
    inputs = ", ".join(
        f"{literal(i.name, 80)} ({literal(i.sha256[:12])})" for i in report.inputs[:3]
    )
    more = f" and {len(report.inputs) - 3} more" if len(report.inputs) > 3 else ""
    warnings = report.quality.warnings
    lines = [f"- ⚠ {prose(w.message)}" for w in warnings[:MAX_EVIDENCE]]
    if len(warnings) > MAX_EVIDENCE:
        lines.append(f"- … {len(warnings) - MAX_EVIDENCE} more warnings")
    version = literal(report.traceprobe_version, 40)
    if lines:
        lines.append("")
    return [*lines, f"traceprobe {version}; {inputs or 'no inputs'}{more}"]

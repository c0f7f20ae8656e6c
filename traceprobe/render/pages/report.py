"""A report told in sections: the verdict, where the time goes, findings, pictures, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from traceprobe.formatting import ranges, shorten, signed, significant, size
from traceprobe.model.taxonomy import SHARE_MEANINGS
from traceprobe.records.base import compact_json
from traceprobe.records.rank import Rank
from traceprobe.records.report import Input, Report
from traceprobe.render.bars import share_bar
from traceprobe.render.document import (
    Bars,
    Block,
    Code,
    Document,
    Facts,
    Findings,
    Section,
    Table,
    Text,
)
from traceprobe.render.pages import ablation, memory, report_summary, roofline
from traceprobe.render.pages.report_pictures import pictures
from traceprobe.render.pages.report_tables import gaps_table
from traceprobe.render.pages.report_time import time_section
from traceprobe.render.ranking import ranks_in_detail
from traceprobe.verdict.wording import bound_label, how_sure, runner_up

MAX_RANKS = 16
"""Ranks with a bar and numbers of their own; of more, only those with pictures have them."""
MAX_INPUTS = 8
"""Inputs whose provenance is written out."""
MAX_OPEN_INPUTS = 2
MAX_NAME = 160
CONTENTS = (
    "Names of kernels, operators and annotated ranges as the trace recorded them, the base names "
    "of the files, the name of the device, versions of libraries, times and sizes. No folders, "
    "host names, user names, environment or source code. Nothing is loaded from or sent to a "
    "network. With `--redact`, names of kernels, ranges and files are replaced by digests."
)
_SHARES_HELP = (
    "A share is the part of a step that goes to one cause, after the profiler's own cost and the "
    "waiting for late ranks are taken out. The run is bound by what has the largest share from the "
    "threshold “bound” on, and by compute where nothing else reaches it. The confidence says how "
    "far the shares are from another verdict, less what makes the trace doubtful."
)
_FINDINGS_HELP = (
    "Each is one question about the run, ranked by what a step could get shorter at most. “Up to” "
    "is an upper bound: removing one cause shows the next one, so the numbers do not add up. A "
    "failure costs as much as what decides a verdict, a warning is worth a look. Start at the top, "
    "change one thing, and measure again."
)
_GAPS_HELP = (
    "A gap is a time in which the device does nothing. Its cause is what the host was doing then: "
    "waiting for data, inside a synchronising call, launching too late. “Before” and “after” are "
    "the operations around it. “Starts at” counts from the report's time zero; “in the file” is "
    "the time stamp that the trace itself has, to look for in Perfetto (with the timestamp format "
    "“Trace ns”, in which 1 µs is 1000) or in nsys-ui."
)
_QUALITY_HELP = (
    "What the trace could not say, and what had to be repaired. An operation with its launch can "
    "be put into a phase; one without stays “unattributed”. A profiler makes the host slower, so a "
    "large effect takes away from what the trace says of overhead."
)


def document(report: Report, paths: Sequence[str] = ()) -> Document:
    """The report for all outputs.

    Args:
        paths: where the inputs are, for commands that the reader of a terminal may copy.
    """
    verdict = report.verdict
    return Document(
        kind="report",
        title=bound_label(verdict.bound, verdict.confidence, verdict.thresholds),
        secondary=runner_up(verdict),
        aside=how_sure(verdict),
        tone=verdict.bound,
        headline=verdict.headline,
        anchor="verdict",
        result=list(_verdict(report)),
        sections=list(_sections(report)),
        summary={
            "markdown": report_summary.markdown(report),
            "terminal": report_summary.terminal(report, paths),
            "verbose": report_summary.verbose(report, paths),
        },
        inputs=[source.name for source in report.inputs],
        digests=[source.sha256 for source in report.inputs],
        provenance=list(_provenance(report)),
        contents=CONTENTS,
        version=report.traceprobe_version,
        json=compact_json(report).decode(),
    )


def _verdict(report: Report) -> Iterator[Block]:
    verdict = report.verdict
    if verdict.shares:
        used = any(rank.summary.iterations_used for rank in report.ranks)
        whole = f"of the {'used iterations' if used else 'capture'}"
        if report.quality.observer_effect or (report.run and report.run.transfer_ns is not None):
            whole += ", after corrections"
        bar = share_bar("", verdict.shares, SHARE_MEANINGS, whole)
        caption = "Shares of the step that decide the verdict"
        yield Bars(caption, "share of the step", [bar], relative=True)
    else:
        yield Text(["No shares: nothing could be measured."])
    yield Section("", "How to read this", [_SHARES_HELP], folded=True)
    if verdict.missing:
        yield Section("", "What is missing", blocks=[Text(verdict.missing)])
    if verdict.reasons:
        yield Section("", "Why", blocks=[Text(verdict.reasons)])
    terms = [[term.name, signed(term.value), term.why] for term in verdict.confidence_terms]
    table = Table("Its terms", ["", "", ""], terms, frozenset({1}))
    title = f"Confidence {100 * verdict.confidence:.0f} %"
    yield Section("", title, blocks=[table] if terms else [])
    if verdict.thresholds:
        numbers = sorted(verdict.thresholds.items())
        facts = Facts([(key.replace("_", " "), f"{value:g}") for key, value in numbers])
        yield Section("", "Thresholds", blocks=[facts])


def _sections(report: Report) -> Iterator[Section]:
    detailed = ranks_in_detail(report)
    if report.ablation is not None:
        yield ablation.beside(report.verdict, report.ablation)
    listed = report.ranks if len(report.ranks) <= MAX_RANKS else detailed
    yield time_section(report, listed, detailed)
    if not isinstance(report.memory, msgspec.UnsetType):
        yield memory.section(report.memory)
    if not isinstance(report.roofline, msgspec.UnsetType):
        yield from roofline.sections(report.roofline)
    yield Section(
        "findings",
        "Opportunities",
        blocks=[Findings(report.findings)],
        help=_FINDINGS_HELP,
        nav="Opportunities",
    )
    yield pictures(report, detailed)
    gaps = gaps_table(report)
    yield Section(
        "gaps",
        "Idle gaps",
        blocks=[gaps if gaps.rows else Text(["No idle gap was recorded."])],
        help=_GAPS_HELP if gaps.rows else "",
        nav="Idle gaps",
    )
    yield _quality(report)


def _quality(report: Report) -> Section:
    quality = report.quality
    facts = [
        ("GPU operations", f"{quality.gpu_ops:,}"),
        ("with their launch", f"{quality.gpu_ops_linked:,}"),
        ("launches without operation", f"{quality.launches_without_gpu_op:,}"),
        ("events repaired", f"{quality.events_repaired:,}"),
        ("events lost", f"{quality.events_lost:,}"),
    ]
    effect = quality.observer_effect
    if effect is not None:
        text = (
            f"{significant(effect.profiled_step_ms)} ms a step with it, "
            f"{significant(effect.unprofiled_step_ms)} ms without: × {effect.ratio:.2f}"
        )
        facts.append(("effect of the profiler", text))
    warnings = [f"`{shorten(w.code, MAX_NAME)}` {w.message}" for w in quality.warnings]
    return Section(
        "quality",
        "Trace quality",
        blocks=[Facts(facts), Text(warnings or ["No warnings."])],
        help=_QUALITY_HELP,
        nav="Trace quality",
    )


def _provenance(report: Report) -> Iterator[Block]:
    count = len(report.inputs)
    inputs: list[Block] = [Facts(_input(source)) for source in report.inputs[:MAX_INPUTS]]
    if count > MAX_INPUTS:
        inputs.append(Text([f"and {count - MAX_INPUTS} more in the embedded data"]))
    is_open = count <= MAX_OPEN_INPUTS
    yield Section("", f"Inputs: {count}", blocks=inputs, folded=True, is_open=is_open)
    yield Facts([*_markers(report.ranks), ("report schema", report.schema_version)])
    if report.workload:
        workload = json.dumps(report.workload, indent=1, sort_keys=True)
        yield Section("", "Workload", blocks=[Code(workload)], folded=True)


def _input(source: Input) -> list[tuple[str, str]]:
    return [
        ("input", source.name),
        ("format", f"{source.format}, {source.dialect}, {size(source.bytes)}"),
        ("written by", source.producer),
        ("time zero on the trace's clock", f"{source.origin_ns} ns"),
        ("SHA-256", f"`{source.sha256}`"),
    ]


def _markers(ranks: Sequence[Rank]) -> list[tuple[str, str]]:
    """Step markers in words, each with the ranks that share it."""
    found: dict[str, list[int]] = {}
    for rank in sorted(ranks, key=lambda r: r.rank):
        marker = rank.step_marker
        if marker is not None:
            pattern = f"`{shorten(marker.pattern, MAX_NAME)}`"
            how = f"({marker.kind}, confidence {marker.confidence:.2f})"
            found.setdefault(f"{marker.count} × {pattern} {how}", []).append(rank.rank)
    return [
        (f"steps of rank {ranges(sorted(set(numbers)))}", text) for text, numbers in found.items()
    ]

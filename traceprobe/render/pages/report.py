"""A report told in sections: verdict, what to do first, timeline, critical path, time, details."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.formatting import ranges, shorten, significant, size
from traceprobe.records.base import compact_json
from traceprobe.records.nccl import joined_words
from traceprobe.records.rank import Rank
from traceprobe.records.report import Input, Report
from traceprobe.render.document import Block, Code, Document, Facts, Section, Text
from traceprobe.render.next_step import slice_command
from traceprobe.render.pages import ablation, causal, memory, report_path, report_summary, roofline
from traceprobe.render.pages.report_advice import advice_section
from traceprobe.render.pages.report_communication import communication_section
from traceprobe.render.pages.report_iterations import iterations_section
from traceprobe.render.pages.report_kernels import kernels_section
from traceprobe.render.pages.report_recording import recording_facts
from traceprobe.render.pages.report_time import time_section
from traceprobe.render.pages.report_timeline import timeline_section
from traceprobe.render.pages.report_verdict import doubt, sentence, verdict_blocks
from traceprobe.render.ranks_in_detail import ranks_in_detail
from traceprobe.verdict.wording import bound_label, how_sure, runner_up

MAX_SAID = 110
"""Characters of a sentence in the title of a fold."""
MAX_RANKS = 16
"""Ranks with a bar and numbers of their own; of more, only those with pictures have them."""
MAX_INPUTS = 8
"""Inputs whose provenance is written out."""
MAX_OPEN_INPUTS = 2
MAX_NAME = 160
CONTENTS = (
    "Names of kernels, operators, annotated ranges and threads as the trace recorded them, base "
    "names of the files, the name of the device, versions of libraries, times and sizes. No "
    "folders, host names, user names, environment or source code. Nothing is loaded from or sent "
    "to a network. With `--redact`, names of kernels, ranges and files are replaced by digests."
)
_QUALITY_HELP = (
    "What the trace could not say, and what had to be repaired. An operation with its launch can "
    "be put into a phase; one without stays “unattributed”. A profiler makes the host slower, so a "
    "large effect takes away from what the trace says of overhead."
)


def document(report: Report, paths: Sequence[str] | None = ()) -> Document:
    """The report for all outputs.

    Args:
        paths: as `brief`.
    """
    return replace(
        brief(report, paths),
        result=list(verdict_blocks(report)),
        sections=list(_sections(report)),
        provenance=list(_provenance(report)),
        json=compact_json(report).decode(),
    )


def brief(report: Report, paths: Sequence[str] | None = ()) -> Document:
    """What fits a terminal or a comment: no sections, which are most of the work, and no data.

    Args:
        paths: where the inputs are, for commands that the reader of a terminal may copy; None where
            nobody knows, and a command could not be run.
    """
    verdict = report.verdict
    return Document(
        kind="report",
        title=bound_label(verdict.bound, verdict.confidence, verdict.thresholds),
        secondary=runner_up(verdict.bound, verdict.secondary),
        aside=how_sure(verdict),
        tone=verdict.bound,
        headline=sentence(verdict),
        doubt=doubt(verdict),
        cautions=report_summary.misleading(report),
        anchor="verdict",
        summary={
            "markdown": report_summary.markdown(report),
            "terminal": report_summary.terminal(report, paths),
            "verbose": report_summary.verbose(report, paths),
        },
        inputs=[source.name for source in report.inputs],
        digests=[source.sha256 for source in report.inputs],
        contents=CONTENTS,
        version=report.traceprobe_version,
        json="",
    )


def _sections(report: Report) -> Iterator[Section]:
    """The story: what to do, the picture, where the time goes, then ever finer detail."""
    detailed = ranks_in_detail(report)
    listed = report.ranks if len(report.ranks) <= MAX_RANKS else detailed
    yield advice_section(report)
    timeline = timeline_section(report, detailed)
    if timeline is not None:
        yield timeline
    path = report_path.section(report)
    if path is not None:
        yield path
    yield time_section(report, listed)
    if report.ablation is not None:
        yield ablation.beside(report.verdict, report.ablation)
    if not isinstance(report.causal, msgspec.UnsetType):
        yield causal.beside(report, report.causal)
    found = (
        iterations_section(detailed),
        kernels_section(report, detailed),
        communication_section(report, detailed),
    )
    yield from (section for section in found if section is not None)
    if not isinstance(report.memory, msgspec.UnsetType):
        yield _folded(memory.section(report.memory), memory.lines(report.memory))
    if not isinstance(report.roofline, msgspec.UnsetType):
        lines = roofline.lines(report.roofline)
        used = [line.removeprefix("utilisation: ") for line in lines if "utilisation: " in line]
        for section in roofline.sections(report.roofline):
            said = {"roofline": lines, "utilisation": used}.get(section.id, section.text)
            yield _folded(section, said)
    yield _quality(report)


def _folded(section: Section, lines: Sequence[str]) -> Section:
    """A section as a fold; the first line is said in its title."""
    title = f"{section.title}: {shorten(lines[0], MAX_SAID)}" if lines else section.title
    return replace(section, title=title, folded=True, nav=section.nav or section.id.capitalize())


def _quality(report: Report) -> Section:
    quality = report.quality
    counts = (
        ("launches without operation", quality.launches_without_gpu_op),
        ("events repaired", quality.events_repaired),
        ("events lost", quality.events_lost),
    )
    facts = [
        ("GPU operations", f"{quality.gpu_ops:,}"),
        ("with their launch", f"{quality.gpu_ops_linked:,}"),
        *((name, f"{count:,}") for name, count in counts if count),
    ]
    effect = quality.observer_effect
    if effect is not None:
        text = (
            f"{significant(effect.profiled_step_ms)} ms a step with it, "
            f"{significant(effect.unprofiled_step_ms)} ms without: × {effect.ratio:.2f}"
        )
        facts.append(("effect of the profiler", text))
    if quality.recording is not UNSET:
        facts += recording_facts(quality.recording)
    if quality.nccl_records is not UNSET:
        facts.append(("joined with NCCL's records", joined_words(quality.nccl_records)))
    warnings = [f"`{shorten(w.code, MAX_NAME)}` {w.message}" for w in quality.warnings]
    count = len(warnings)
    said = f"{count} warning{'s' * (count > 1)}" if count else "no warnings"
    if quality.gpu_ops:
        linked = 100 * quality.gpu_ops_linked / quality.gpu_ops
        said += f", {linked:.0f} % of {quality.gpu_ops:,} operations with their launch"
    return Section(
        "quality",
        f"Trace quality: {said}",
        blocks=[Text(warnings or ["No warnings."]), Facts(facts)],
        help=_QUALITY_HELP,
        nav="Quality",
        folded=True,
    )


def _provenance(report: Report) -> Iterator[Block]:
    count = len(report.inputs)
    inputs: list[Block] = [Facts(_input(source)) for source in report.inputs[:MAX_INPUTS]]
    if count > MAX_INPUTS:
        inputs.append(Text([f"and {count - MAX_INPUTS} more in the embedded data"]))
    is_open = count <= MAX_OPEN_INPUTS
    yield Section("", f"Inputs: {count}", blocks=inputs, folded=True, is_open=is_open)
    cut = slice_command(report)
    if cut and all(source.format == "kineto" for source in report.inputs):
        text = Text(["To see a step in Perfetto (ui.perfetto.dev), cut it out first:"])
        yield Section("", "A step in Perfetto", blocks=[text, Code(cut)])
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

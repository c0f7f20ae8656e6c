"""A report without the names that a trace recorded: kernels, ranges, files.

A name becomes a digest of itself, the same in every report, so that two redacted reports can still
be compared. Who knows a name can find it again; who does not cannot read it.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from traceprobe.report.memory import Memory, MemoryStep
from traceprobe.report.palette import BUSY_WORDS
from traceprobe.report.result import (
    Finding,
    Gap,
    Iteration,
    Lane,
    LostInput,
    Quality,
    Rank,
    Report,
    Run,
    Timeline,
)

_PHASES = {*BUSY_WORDS, "data"}
"""Details of the host's lane, which are words of traceprobe."""


def redact(report: Report) -> Report:
    """The same numbers; names replaced, and what the program said of its workload left out."""
    return replace(
        report,
        inputs=[replace(i, name=digest(i.name)) for i in report.inputs],
        quality=_quality(report.quality),
        ranks=[_rank(rank) for rank in report.ranks],
        run=report.run and _run(report.run),
        workload=None,
        ablation=report.ablation and replace(report.ablation, workload=None),
        findings=[_finding(f, report) for f in report.findings],
        memory=_memory(report.memory),
    )


def digest(name: str) -> str:
    """A name in eight hexadecimal digits."""
    return "#" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]


def _quality(quality: Quality) -> Quality:
    """Reasons and the warning of lost inputs quote their names."""
    if isinstance(quality.lost, msgspec.UnsetType):
        return quality
    names = {entry.name: digest(entry.name) for entry in quality.lost}

    def without(text: str) -> str:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name])
        return text

    return replace(
        quality,
        lost=[LostInput(name=names[e.name], reason=without(e.reason)) for e in quality.lost],
        warnings=[replace(w, message=without(w.message)) for w in quality.warnings],
    )


def _run(run: Run) -> Run:
    if isinstance(run.overview, msgspec.UnsetType):
        return run
    steps = run.overview.steps
    steps = replace(steps, labels=[digest(label) for label in steps.labels])
    return replace(run, overview=replace(run.overview, steps=steps))


def _rank(rank: Rank) -> Rank:
    marker, summary = rank.step_marker, rank.summary
    return replace(
        rank,
        step_marker=marker and replace(marker, pattern=digest(marker.pattern)),
        iterations=[_iteration(i) for i in rank.iterations],
        summary=replace(
            summary, top_kernels=[replace(k, name=digest(k.name)) for k in summary.top_kernels]
        ),
        gaps=[_gap(gap) for gap in rank.gaps],
        timeline=_timeline(rank.timeline),
        worst=_timeline(rank.worst),
    )


def _iteration(iteration: Iteration) -> Iteration:
    return replace(iteration, label=digest(iteration.label))


def _gap(gap: Gap) -> Gap:
    return replace(
        gap,
        before=gap.before if gap.before is None else digest(gap.before),
        after=gap.after if gap.after is None else digest(gap.after),
    )


def _timeline(timeline: Timeline | None) -> Timeline | None:
    return timeline and replace(timeline, lanes=[_lane(lane) for lane in timeline.lanes])


def _lane(lane: Lane) -> Lane:
    return replace(lane, detail=[d if d in _PHASES else digest(d) for d in lane.detail])


def _memory(memory: Memory | msgspec.UnsetType) -> Memory | msgspec.UnsetType:
    """Phases have the program's names, and a reason may quote anything."""
    if isinstance(memory, msgspec.UnsetType):
        return memory
    return replace(
        memory,
        measured=memory.measured and _memory_step(memory.measured),
        predicted=memory.predicted and _memory_step(memory.predicted),
        not_measured=memory.not_measured and digest(memory.not_measured),
        not_predicted=memory.not_predicted and digest(memory.not_predicted),
    )


def _memory_step(step: MemoryStep) -> MemoryStep:
    def word(name: str) -> str:
        return name if not name or name in _PHASES else digest(name)

    return replace(
        step,
        peak_phase=step.peak_phase and word(step.peak_phase),
        peak_operator=step.peak_operator and digest(step.peak_operator),
        phases={word(name): nbytes for name, nbytes in step.phases.items()},
        timeline=replace(step.timeline, phase=[word(name) for name in step.timeline.phase]),
    )


def _finding(finding: Finding, report: Report) -> Finding:
    """Evidence may quote a label of a step."""
    labels = {i.label for rank in report.ranks for i in rank.iterations}
    names = sorted(labels - {""}, key=len, reverse=True)
    evidence = list(finding.evidence)
    for name in names:
        if not name.isdigit():  # a number tells nothing
            evidence = [line.replace(name, digest(name)) for line in evidence]
    return replace(finding, evidence=evidence)

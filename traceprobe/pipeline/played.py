"""What playing its iterations again adds to a report: the critical path, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.errors import ImpossibleChange
from traceprobe.findings.first_fixes import first_fixes, to_do_in_order
from traceprobe.formatting import significant
from traceprobe.records.ablation import Ablation, VariantName
from traceprobe.records.causal import Causal
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.headroom import Floor
from traceprobe.records.prediction import JointPrediction
from traceprobe.records.report import Finding, Message, Quality, Report
from traceprobe.replay.forecast import forecast, within_reach_ms
from traceprobe.replay.path_record import path_record
from traceprobe.replay.predict import Playable, prepare
from traceprobe.replay.scenario import Changes
from traceprobe.verdict import second_opinion
from traceprobe.verdict.finding_order import ATTENTION
from traceprobe.verdict.headroom import OTHER_PRECISION, headroom

ABLATED: Mapping[str, tuple[VariantName, VariantName]] = {
    "data-wait": ("full", "synthetic-host"),
    "h2d-exposed": ("synthetic-host", "synthetic-device"),
    "communication-exposed": ("full", "full-no-comm"),
}
"""Variants of an ablation with what a finding is about, and without."""


def with_predictions(
    report: Report, regular: Report, changes: Mapping[str, Changes], floors: Sequence[Floor]
) -> Report:
    """The report with its critical path, predicted savings and headroom, as far as they are known.

    Args:
        regular: the report with the ranks that the findings are about, where not all iterations
            are; else the same.
        changes: what mending a finding changes, by id.
        floors: what no step is shorter than.
    """
    run = _playable(report)
    path = UNSET if run is None else path_record(run)
    usual = run if regular is report else _playable(regular)
    joint: JointPrediction | UnsetType = UNSET
    gained = 0.0
    if usual is not None:
        report, joint = forecast(report, usual, changes, first_fixes)
        asking = [f for f in report.findings if f.status in ATTENTION]
        kept = [f for f in asking if f.id not in OTHER_PRECISION]
        gained = within_reach_ms(usual, kept, changes)
    now = report.step_ms
    found = None if now is None else headroom(now, now - gained, floors)
    return replace(
        report,
        critical_path=path,
        joint=joint,
        findings=[_measured(f, report.ablation) for f in to_do_in_order(report)],
        quality=_with_second_opinion(report, path),
        headroom=UNSET if found is None else found,
    )


def _with_second_opinion(report: Report, path: CriticalPath | UnsetType) -> Quality:
    """Warns where delays that were put into the program contradict what its trace says."""
    if not isinstance(report.causal, Causal):
        return report.quality
    compared = second_opinion.compare(report.verdict, report.causal)
    found = [f"by probes {compared.words}"] if compared.state == "disagree" else []
    if isinstance(path, CriticalPath):
        found += second_opinion.contradictions(path, report.causal)
    if not found:
        return report.quality
    told = Message(
        code="probes-disagree",
        message=f"Delays in the running program contradict the trace: {'; '.join(found)}.",
    )
    warnings = sorted([*report.quality.warnings, told], key=lambda warning: warning.code)
    return replace(report.quality, warnings=warnings)


def _measured(finding: Finding, ablation: Ablation | None) -> Finding:
    """A finding that asks for a change, with what an ablation of the same loop measured of it."""
    if ablation is None or finding.status not in ATTENTION or finding.id not in ABLATED:
        return finding
    steps = {variant.name: variant.step_ms.median for variant in ablation.variants}
    whole, without = (steps.get(name) for name in ABLATED[finding.id])
    if whole is None or without is None:
        return finding
    # Of its own step, which may be a part of an iteration: several updates may make one.
    less = f"{significant(max(whole - without, 0.0))} of {significant(whole)} ms"
    return replace(
        finding,
        evidence=[*finding.evidence, f"an ablation measured {less} a step less without it"],
    )


def _playable(report: Report) -> Playable | None:
    try:
        return prepare(report)
    except ImpossibleChange:
        return None

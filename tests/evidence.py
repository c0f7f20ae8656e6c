"""What findings are told from, made of ranks with exact numbers, and findings by their names."""

from __future__ import annotations

from msgspec.structs import replace

from tests import records
from traceprobe import findings
from traceprobe.records.report import ObserverEffect
from traceprobe.verdict.judge import judge


def evidence(
    *ranks,
    together=None,
    profiled=(),
    unprofiled_ms=None,
    workload=None,
    capture=None,
    loader=None,
    **facts,
):
    """What these ranks are judged by, with the verdict on them; `facts` are of the quality."""
    good, marks = records.quality(**facts), frozenset(profiled)
    unprofiled = None if unprofiled_ms is None else unprofiled_ms * 1e6
    if unprofiled_ms is not None:
        captured = ranks[0].summary.step_ms.mean
        effect = ObserverEffect(
            profiled_step_ms=captured,
            unprofiled_step_ms=unprofiled_ms,
            ratio=captured / unprofiled_ms,
        )
        good = replace(good, observer_effect=effect)
    verdict = judge(ranks, together, good, marks, unprofiled, records.THRESHOLDS)
    return findings.Evidence(
        *(ranks, together, good, verdict, records.THRESHOLDS, marks, workload, capture or {}),
        loader=loader,
    )


def finding_of(name, *ranks, **options):
    """The finding of that name on these ranks."""
    return next(f for f in findings.find_all(evidence(*ranks, **options)) if f.id == name)


def outcome_of(name, *ranks, **options):
    """Status of the finding of that name on these ranks, and the ms per step it could save."""
    finding = finding_of(name, *ranks, **options)
    return finding.status, finding.saving_ms_per_step


def finding_in(report, name):
    """The finding of that name in a report."""
    return next(f for f in report.findings if f.id == name)

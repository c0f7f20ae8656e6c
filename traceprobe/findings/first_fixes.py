"""What to do first: findings by urgency, without what would save the same time again."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from msgspec import UNSET

from traceprobe.model.taxonomy import SHARE_CLASSES
from traceprobe.records.report import Finding, Report
from traceprobe.verdict.bounds import deciding
from traceprobe.verdict.finding_order import ATTENTION, in_order
from traceprobe.verdict.thresholds import FIXED

RECURRING = "long-iterations"
"""What is about any bound: the shares count what some iterations do more than the others."""
ENABLING = "cpu-oversubscribed"
"""What holds up all that a step does: what else would save is only known without it."""
SUBJECTS = {
    "allocator-stalls": "overhead",
    "attention-mask": "compute",
    "attention-unfused": "compute",
    "bus-bandwidth": "communication",
    "communication-exposed": "communication",
    "communication-skew": "communication",
    "cpu-oversubscribed": "compute",
    "data-parallel": "overhead",
    "dense-embedding": "compute",
    "large-logits": "compute",
    "data-wait": "io",
    "ddp-buckets": "communication",
    "double-precision": "compute",
    "forward-only": "compute",
    "garbage-collection": "overhead",
    "gpu-shared": "compute",
    "graph-breaks": "compute",
    "h2d-exposed": "io",
    "h2d-pageable": "io",
    "host-overhead": "overhead",
    "lower-precision": "compute",
    "memory-format": "compute",
    "memory-traffic": "compute",
    "optimizer-cost": "compute",
    "optimizer-launches": "compute",
    "pipeline-bubble": "communication",
    "prefetch-drained": "io",
    "recompilation": "overhead",
    "recomputation": "compute",
    "repeated-collectives": "communication",
    "retained-graph": "compute",
    "small-kernels": "overhead",
    "synchronization": "overhead",
    "tf32-off": "compute",
    "unaligned-matmul": "compute",
    "unfused-kernels": "compute",
    "unused-gradients": "compute",
}
"""Share that a finding is about, where it has no saving whose classes would say so."""


def to_do_in_order(report: Report) -> list[Finding]:
    """All findings of a report: what to do first, then the others."""
    first = first_fixes(report)
    return [*first, *(f for f in in_order(report.findings) if f not in first)]


def first_fixes(report: Report, most: int = 3) -> list[Finding]:
    """What to do first: findings that ask for a change, by the time that it saves.

    Where what bounds the run cannot be played without its cause, what is about it comes first: its
    upper bound is no match for predictions. Left out is what would only save time that the verdict
    holds to be not worth mentioning or is nothing beside the others, and what promises the same
    time as one before it. Findings without a saving count where they are about the bound, or where
    none has one. Of an inconclusive verdict, what is wrong with the capture comes first.

    Returns:
        At most so many, the first first; none where nothing asks for a change.
    """
    asking = [f for f in in_order(report.findings) if f.status in ATTENTION]
    most_ms = max((f.saving_ms_per_step or 0.0 for f in asking), default=0.0)
    asking = [f for f in asking if (f.saving_ms_per_step or math.inf) >= FIXED.no_saving * most_ms]
    saving = [f for f in asking if f.saving_ms_per_step is not None]
    bounds = deciding(report.verdict.bound, report.verdict.secondary)
    if not bounds:
        capture = [f for f in asking if f.status == "fail" and not _shares(f) and f not in saving]
        return _distinct([*capture, *saving])[:most]
    left_out = _negligible(report)
    subject = {f.id: _shares(f) | causes_of_skew(f, report) for f in asking}
    about = [
        f for f in asking if subject[f.id] & set(bounds) or (f.id == RECURRING and f in saving)
    ]
    worth = [f for f in asking if f in about or not _shares(f) or _shares(f) - left_out]
    chosen = [f for f in worth if f in saving or f in about]
    chosen = chosen or [f for f in worth if _shares(f)]
    lead = [f for f in about[:1] if f.predicted is UNSET]
    enabling = [f for f in asking if f.id == ENABLING and f.status == "fail"]
    if enabling:
        chosen, lead = list({f.id: f for f in [*enabling, *chosen]}.values()), enabling
    return _distinct(sorted(chosen, key=lambda f: f not in lead))[:most]


def is_about(finding: Finding, shares: Collection[str]) -> bool:
    """Whether a finding is about one of these shares of the step."""
    return not _shares(finding).isdisjoint(shares)


def _shares(finding: Finding) -> set[str]:
    """The shares of the step that a finding is about; empty where it is about none of them."""
    if finding.saving_of is UNSET or not finding.saving_of:
        return {SUBJECTS[finding.id]} if finding.id in SUBJECTS else set()
    share_of = {name: share for share, names in SHARE_CLASSES.items() for name in names}
    return {share_of.get(name, "compute") for name in finding.saving_of}  # else a kernel's class


def causes_of_skew(finding: Finding, report: Report) -> set[str]:
    """What most of the waiting for other ranks comes from: the shares count it there."""
    causes = report.run.skew_causes if report.run is not None else None
    if finding.id != "communication-skew" or not causes:
        return set()
    return {max(causes, key=lambda name: causes[name])}


def _negligible(report: Report) -> set[str]:
    """Shares that the verdict does not mention for want of size."""
    verdict = report.verdict
    notable = verdict.thresholds.get("notable", 0.0)
    skew = 0.0 if verdict.skew is UNSET else verdict.skew  # in the shares it counts by its causes
    return {
        name
        for name, share in verdict.shares.items()
        if share + (skew if name == "communication" else 0.0) < notable
    }


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Without those that promise the same time as one before them."""
    kept: list[Finding] = []
    for finding in findings:
        if not any(_same_time(finding, other) for other in kept):
            kept.append(finding)
    return kept


def _same_time(one: Finding, other: Finding) -> bool:
    """Whether the savings are equal, predicted or at most, and one's classes among the other's."""
    if one.saving_of is UNSET or other.saving_of is UNSET:
        return False
    first, second = set(one.saving_of), set(other.saving_of)
    if not first or not second:  # of no class in particular
        return False
    bounds = (one.saving_ms_per_step or 0.0, other.saving_ms_per_step or 0.0)
    gains = (one.gain_ms, other.gain_ms)
    # Next to nothing is the same for all, and says nothing of what it is of.
    tells = min(gains) > FIXED.same_saving * max(bounds)
    alike = math.isclose(*bounds, rel_tol=FIXED.same_saving)
    alike = alike or (tells and math.isclose(*gains, rel_tol=FIXED.same_saving))
    return (first <= second or second <= first) and alike

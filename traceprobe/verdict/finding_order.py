"""Findings in their order: what asks for attention first, by what mending it gains.

Of findings about one time those that name an act of the program come first, the general ones after.

`synchronization` names what waits for the device; `host-overhead` says that the host is late, which
waiting made it. What both would save counts for the first, and the second is about the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.report import Finding
from traceprobe.verdict.thresholds import FIXED

CAUSES: Mapping[str, tuple[str, ...]] = {
    "communication-exposed": ("bus-bandwidth",),
    "host-overhead": ("synchronization", "data-parallel", "retained-graph", "unused-gradients"),
    "long-iterations": (),
    "small-kernels": ("synchronization", "data-parallel", "retained-graph", "unused-gradients"),
}
"""General findings with the specific ones that explain a part of their time."""
APART = ("allocator-stalls", "garbage-collection", "recompilation", "host-pauses")
"""Further specific ones, whose time the general ones leave out themselves."""
SYMPTOMS: Mapping[str, tuple[str, ...]] = {"communication-skew": ("data-wait",)}
"""Findings about waiting for another rank, with those that say what it is late by."""
ATTENTION = ("fail", "warn")
"""States in which a finding asks for a change, whose saving then counts."""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What asks for attention by what mending it gains, then the others by their state."""
    order = list(STATUS_LABELS)

    def urgency(finding: Finding) -> tuple[int, float, float, int, str]:
        state = order.index(finding.status)
        group = 0 if finding.status in ATTENTION else state
        return group, *finding.by_gain, state, finding.id

    return causes_first(sorted(findings, key=urgency))


def causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, but specific ones before the general ones about their time."""
    ordered = list(findings)
    for general in findings:
        for specific in findings:
            if not _explains(specific, general):
                continue
            if ordered.index(specific) > ordered.index(general):
                ordered.remove(specific)
                ordered.insert(ordered.index(general), specific)
    return ordered


def _explains(specific: Finding, general: Finding) -> bool:
    """Whether a finding is a cause of what another is about, and worth naming before it."""
    if specific.id in SYMPTOMS.get(general.id, ()):
        least = FIXED.gain_of_late
    elif general.id in CAUSES and specific.id in (*CAUSES[general.id], *APART):
        least = FIXED.gain_of_cause
    else:
        return False
    asked = specific.status in ATTENTION and general.status in ATTENTION
    return asked and specific.gain_ms > 0 and specific.gain_ms >= least * general.gain_ms

"""Findings that would save the same time say so, since their savings do not add up."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.records.report import Finding
from traceprobe.verdict.finding_order import ATTENTION


def naming_each_other(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order; those that ask for a change name others that share its time."""
    return [_named(finding, findings) if _asks(finding) else finding for finding in findings]


def _named(finding: Finding, findings: Sequence[Finding]) -> Finding:
    classes = _classes(finding)
    others = sorted(
        other.id
        for other in findings
        if other.id != finding.id and _asks(other) and classes & _classes(other)
    )
    if not others:
        return finding
    names = ", ".join(f"`{name}`" for name in others)
    sentence = f"shares its time with {names}: their savings do not add up"
    return replace(finding, evidence=[*finding.evidence, sentence])


def _asks(finding: Finding) -> bool:
    return finding.status in ATTENTION and finding.saving_ms_per_step is not None


def _classes(finding: Finding) -> set[str]:
    """What the saving is of. What is computed again is computed by kernels of all classes."""
    classes = set[str]() if finding.saving_of is UNSET else {*finding.saving_of}
    return classes | {*KERNEL_CLASSES} if "recompute" in classes else classes

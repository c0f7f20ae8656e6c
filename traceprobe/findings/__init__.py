"""Findings: one question about the run a file, each with evidence, advice and an upper bound.

Every module of this package that decorates a function with `rule` adds a finding. A rule is a pure
function of `Evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

import msgspec

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import RULES
from traceprobe.findings.sharing import naming_each_other
from traceprobe.records.report import Finding
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.finding_order import in_order

__all__ = ["RULES", "Evidence", "Findings", "examine", "find_all"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


class Findings(msgspec.Struct, frozen=True):
    """All findings of a run, in order, and by id what mending those that ask for it changes."""

    findings: list[Finding]
    changes: Mapping[str, Changes]


def examine(evidence: Evidence) -> Findings:
    """Every finding, worst first, then by saving, then by id."""
    answers = [rule.examine(evidence) for rule in RULES.values()]
    return Findings(
        in_order(naming_each_other([finding for finding, _ in answers])),
        {finding.id: changes for finding, changes in answers if changes is not None},
    )


def find_all(evidence: Evidence) -> list[Finding]:
    """Every finding without what mending it changes, in the same order."""
    return examine(evidence).findings

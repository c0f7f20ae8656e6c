"""Findings: one question about the run a file, each with evidence, advice and an upper bound.

Every module of this package that decorates a function with `rule` adds a finding. A rule is a pure
function of `Evidence`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import RULES
from traceprobe.findings.sharing import naming_each_other
from traceprobe.model.taxonomy import STATUS_LABELS
from traceprobe.records.report import Finding

__all__ = ["RULES", "Evidence", "find_all"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def find_all(evidence: Evidence) -> list[Finding]:
    """Every finding, worst first, then by saving, then by id."""
    order = list(STATUS_LABELS)
    return sorted(
        naming_each_other([rule(evidence) for rule in RULES.values()]),
        key=lambda f: (order.index(f.status), -(f.saving_ms_per_step or 0.0), f.id),
    )

"""Findings: one question about the run a file, each with evidence, advice and an upper bound.

A finding is a pure function of `Evidence`. `not-applicable` means that the run has nothing of the
kind, `inconclusive` that the trace cannot answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from traceprobe.findings import (
    attention_unfused,
    communication_exposed,
    communication_skew,
    data_wait,
    ddp_buckets,
    h2d_exposed,
    h2d_pageable,
    host_overhead,
    lower_precision,
    memory_format,
    memory_peak,
    memory_slack,
    memory_traffic,
    optimizer_cost,
    optimizer_launches,
    phase_attribution,
    prefetch_drained,
    profiler_distortion,
    recomputation,
    small_kernels,
    synchronization,
    tf32_off,
    unaligned_matmul,
    unfused_kernels,
    unused_iterations,
)
from traceprobe.findings.evidence import Evidence
from traceprobe.records.report import Finding


class Check(Protocol):
    """What a module of this package holds.

    Args:
        RULE: how the finding and its saving are computed. VERIFY: how a user can check it.
    """

    ID: str
    RULE: str
    VERIFY: str

    def check(self, evidence: Evidence) -> Finding:
        """Answer the question."""


CHECKS: Sequence[Check] = (
    attention_unfused,
    communication_exposed,
    communication_skew,
    data_wait,
    ddp_buckets,
    h2d_exposed,
    h2d_pageable,
    host_overhead,
    lower_precision,
    memory_format,
    memory_peak,
    memory_slack,
    memory_traffic,
    optimizer_cost,
    optimizer_launches,
    phase_attribution,
    prefetch_drained,
    profiler_distortion,
    recomputation,
    small_kernels,
    synchronization,
    tf32_off,
    unaligned_matmul,
    unfused_kernels,
    unused_iterations,
)
_ORDER = ("fail", "warn", "inconclusive", "pass", "not-applicable")


def run_all(evidence: Evidence) -> list[Finding]:
    """Every finding, worst first, then by saving, then by id."""
    found = [
        msgspec.structs.replace(check.check(evidence), rule=check.RULE, verify=check.VERIFY)
        for check in CHECKS
    ]
    return sorted(
        found, key=lambda f: (_ORDER.index(f.status), -(f.saving_ms_per_step or 0.0), f.id)
    )


__all__ = ["CHECKS", "Evidence", "run_all"]

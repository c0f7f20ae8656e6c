"""Findings: one question about the run a file, each with evidence, advice and an upper bound.

A finding is a pure function of `Evidence`. `not-applicable` means that the run has nothing of the
kind, `inconclusive` that the trace cannot answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from traceprobe.report.result import Finding
from traceprobe.verdict.findings import (
    communication_exposed,
    communication_skew,
    data_wait,
    ddp_buckets,
    h2d_exposed,
    h2d_pageable,
    host_overhead,
    lower_precision,
    memory_traffic,
    optimizer_cost,
    phase_attribution,
    prefetch_drained,
    profiler_distortion,
    recomputation,
    small_kernels,
    synchronization,
    unaligned_matmul,
    unfused_kernels,
    unused_iterations,
)
from traceprobe.verdict.findings.evidence import Evidence

CHECKS: Sequence[Callable[[Evidence], Finding]] = (
    communication_exposed.check,
    communication_skew.check,
    data_wait.check,
    ddp_buckets.check,
    h2d_exposed.check,
    h2d_pageable.check,
    host_overhead.check,
    lower_precision.check,
    memory_traffic.check,
    optimizer_cost.check,
    phase_attribution.check,
    prefetch_drained.check,
    profiler_distortion.check,
    recomputation.check,
    small_kernels.check,
    synchronization.check,
    unaligned_matmul.check,
    unfused_kernels.check,
    unused_iterations.check,
)
_ORDER = ("fail", "warn", "inconclusive", "pass", "not-applicable")


def run_all(evidence: Evidence) -> list[Finding]:
    """Every finding, worst first, then by saving, then by id."""
    found = [check(evidence) for check in CHECKS]
    return sorted(
        found, key=lambda f: (_ORDER.index(f.status), -(f.saving_ms_per_step or 0.0), f.id)
    )


__all__ = ["CHECKS", "Evidence", "run_all"]

"""Is it known what the kernels were for?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent
from traceprobe.verdict.thresholds import FIXED


@rule(
    "phase-attribution",
    title="Kernels without a phase",
    title_on_cpu="Operators without a phase",
    definition="Share of kernel time, communication left out, whose phase is known; the worst rank "
    "counts.",
    verify="`traceprobe inspect` lists the ranges of the file. After annotating, "
    "`attributed_share` is near 1.",
)
def phase_attribution(evidence: Evidence) -> Answer:
    """Share of kernel time whose phase is known."""
    shares = [s for r in evidence.ranks if (s := r.summary.attributed_share) is not None]
    if not shares:
        return not_applicable("no kernels")
    share = min(shares)
    linked = evidence.quality.gpu_ops_linked / max(evidence.quality.gpu_ops, 1)
    work = "operator" if evidence.on_cpu else "kernel"
    return Answer(
        "pass" if share >= FIXED.attributed else "warn",
        [
            f"{percent(share)} of {work} time is attributed to a phase",
            "" if evidence.on_cpu else f"{percent(linked)} of the GPU ops have a launch row",
        ],
        advice="Annotate forward pass and optimizer (`record_function` or NVTX; the backward pass "
        "is found without), or map your own names with `--phase forward=REGEX`.",
    )

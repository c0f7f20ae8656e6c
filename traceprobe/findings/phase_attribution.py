"""Is it known what the kernels were for?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "phase-attribution"
RULE = "Share of kernel time, communication left out, whose phase is known; the worst rank counts."
VERIFY = (
    "`traceprobe inspect` lists the ranges of the file. After annotating, `attributed_share` is "
    "near 1."
)
ENOUGH = 0.98


def check(evidence: Evidence) -> Finding:
    """Share of kernel time whose phase is known."""
    title = "Kernels without a phase"
    known = [
        r.summary.attributed_share for r in evidence.ranks if r.summary.attributed_share is not None
    ]
    if not known:
        return unanswered(ID, "not-applicable", title, "no kernels")
    share = min(known)
    linked = evidence.quality.gpu_ops_linked / max(evidence.quality.gpu_ops, 1)
    return Finding(
        id=ID,
        status="pass" if share >= ENOUGH else "warn",
        title=title,
        saving_ms_per_step=None,
        evidence=[
            f"{share:.1%} of kernel time is attributed to a phase",
            f"{linked:.1%} of the GPU ops have a launch row",
        ],
        advice=(
            "Annotate forward and optimizer (`record_function` or NVTX; the backward pass is found "
            "without), or map your own names with `--phase forward=REGEX`."
        ),
    )

"""Does the GPU stand still for communication?"""

from __future__ import annotations

from traceprobe.report.result import Finding
from traceprobe.verdict.findings.evidence import Evidence, lines, unanswered

ID = "communication-exposed"


def check(evidence: Evidence) -> Finding:
    """Collectives during which no other kernel runs."""
    title = "Communication is not hidden by computation"
    comm = [r.summary.communication for r in evidence.ranks if r.summary.communication is not None]
    if not comm:
        return unanswered(ID, "not-applicable", title, "no communication kernels")
    ms = evidence.exclusive_ms("communication")
    per_step = [r.summary.collectives_per_step for r in evidence.ranks]
    known = [c for c in per_step if c is not None]
    return Finding(
        id=ID,
        status=evidence.grade(evidence.verdict.shares.get("communication", 0.0)),
        title=title,
        saving_ms_per_step=evidence.saving(evidence.hideable_ms("communication")),
        evidence=lines(
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of communication while nothing "
            "is computed",
            f"{sum(c.overlap_pct for c in comm) / len(comm):.1f} % of communication overlaps with "
            "computation"
            + (f", {sum(known) / len(known):.1f} collectives per step" if known else ""),
            evidence.worst("communication"),
        ),
        advice=(
            "Accumulate gradients (`no_sync()`), reduce in bf16, tune `bucket_cap_mb` so that the "
            "all-reduce starts earlier in backward, or give each GPU more work per step."
        ),
    )

"""Are activations computed twice?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "recomputation"
RULE = (
    "Exclusive time of forward operations that run again on the autograd thread. The saving is "
    "all of it and the idle time of `host-overhead`, since their launches go away too."
)
VERIFY = "`partition_ns.recompute` falls, peak memory rises."


def check(evidence: Evidence) -> Finding:
    """Forward operations that run again in the backward pass, to save memory."""
    title = "Activations are computed twice"
    if not evidence.observed("recompute") and "operators" not in evidence.profiled:
        why = "without operators the trace does not tell forward work in the backward pass apart"
        return unanswered(ID, "inconclusive", title, why)
    if not evidence.observed("recompute"):
        return unanswered(ID, "not-applicable", title, "no forward work in the backward pass")
    ms = evidence.exclusive_ms("recompute")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms + evidence.host_ms()),
        evidence=[f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of recomputation"],
        advice="Checkpoint fewer layers if memory allows it, or the cheap ones only; a smaller "
        "batch without checkpointing may be faster.",
    )

"""Does the optimizer take a notable part of the step?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "optimizer-cost"
RULE = "Exclusive time of the optimizer's kernels. The saving is all of it."
VERIFY = (
    "`partition_ns.optimizer` falls. Adam in fp32 moves 28 bytes a parameter; below what that "
    "takes at the memory's bandwidth it cannot fall."
)


def check(evidence: Evidence) -> Finding:
    """Exclusive time of the optimizer's kernels."""
    title = "The optimizer takes a notable part of the step"
    if not evidence.observed("optimizer"):
        return unanswered(ID, "not-applicable", title, "no kernels of an optimizer were found")
    ms = evidence.exclusive_ms("optimizer")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms),
        evidence=[f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in the optimizer"],
        advice="Use `fused=True`, or at least `foreach=True`; accumulate gradients over more "
        "samples, so that there are fewer updates.",
    )

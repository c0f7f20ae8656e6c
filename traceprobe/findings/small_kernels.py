"""Are the kernels too small to be worth a launch?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "small-kernels"
RULE = (
    "Mean kernel duration and number of launches per step; kernels of a CUDA graph share one. The "
    "saving is the idle time of "
    "`host-overhead`, all of which a CUDA graph can take away at best."
)
VERIFY = (
    "`host.kernels_per_step` falls, `host.mean_kernel_us` rises, and the unprofiled step gets "
    "shorter."
)
SHORT_US = 10.0
"""About what a launch costs the host."""
MANY = 500.0


def check(evidence: Evidence) -> Finding:
    """Mean kernel duration against the cost of a launch."""
    title = "Many short kernels"
    known = [r.summary.host for r in evidence.ranks if r.summary.host.mean_kernel_us is not None]
    if not known:
        return unanswered(ID, "not-applicable", title, "no kernels")
    mean = sum(h.mean_kernel_us or 0.0 for h in known) / len(known)
    count = sum(h.kernels_per_step for h in known) / len(known)
    launches = sum(h.launches_per_step for h in known) / len(known)
    starved = evidence.verdict.shares.get("overhead", 0.0) >= evidence.limits.notable
    warned = mean < SHORT_US and launches > MANY and starved
    return Finding(
        id=ID,
        status="warn" if warned else "pass",
        title=title,
        saving_ms_per_step=evidence.saving(evidence.host_ms()) if warned else None,
        evidence=[
            f"{count:.0f} kernels {evidence.per}, {mean:.1f} µs on average, in {launches:.0f} "
            "launches"
        ],
        advice=(
            "Fuse them (`torch.compile`, fused optimizers and losses), replay them as a CUDA "
            "graph, or "
            "raise the batch size so that each does more."
        ),
    )

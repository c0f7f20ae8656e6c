"""Are the kernels too small to be worth a launch?"""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.host_overhead import FEWER_LAUNCHES
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.verdict.thresholds import FIXED


@rule(
    "small-kernels",
    title="Many short kernels",
    definition="Mean kernel duration and number of launches per step; kernels of a CUDA graph "
    "share one. The saving is the idle time of `host-overhead`, all of which a CUDA graph can take "
    "away at best.",
    verify="`host.kernels_per_step` falls, `host.mean_kernel_us` rises, and the unprofiled step "
    "gets shorter.",
    of_gpu=True,
)
def small_kernels(evidence: Evidence) -> Answer:
    """Mean kernel duration against the cost of a launch."""
    hosts = [r.summary.host for r in evidence.ranks if r.summary.host.mean_kernel_us is not None]
    if not hosts:
        return not_applicable("no kernels")
    mean = fmean(h.mean_kernel_us or 0.0 for h in hosts)
    launches = fmean(h.launches_per_step for h in hosts)
    starved = evidence.verdict.shares.get("overhead", 0.0) >= evidence.thresholds.notable
    warned = mean < FIXED.short_kernel_us and launches > FIXED.many_launches and starved
    return Answer(
        "warn" if warned else "pass",
        [
            f"{fmean(h.kernels_per_step for h in hosts):.0f} kernels {evidence.per}, "
            f"{mean:.1f} µs on average, in {launches:.0f} launches"
        ],
        evidence.saving(evidence.host_ms(), *HOST_IDLE) if warned else None,
        "Fuse them (`torch.compile`, fused optimizers and losses), replay them as a CUDA graph, or "
        "raise the batch size so that each does more.",
        changes=FEWER_LAUNCHES,
    )

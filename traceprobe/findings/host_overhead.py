"""Does the host launch too slowly?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered
from traceprobe.records.report import Finding

ID = "host-overhead"
RULE = (
    "Idle time per step because the next op was launched late (`idle_host`), or launched in "
    "time and started later (`idle_latency`). The saving is no more of it than what is left "
    "once the profiler's part is taken out."
)
VERIFY = (
    "Time the loop without a profiler, then with twice the batch size. If the step hardly gets "
    "longer, the host was the limit."
)


def check(evidence: Evidence) -> Finding:
    """Idle GPU because the next kernel was launched late, or launched in time and started late."""
    title = "The host does not keep the device fed"
    if not evidence.observed("idle_host", "idle_latency"):
        return unanswered(
            ID,
            "inconclusive",
            title,
            "the trace has no host rows",
            "Record the CPU too (`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`).",
        )
    late, latency = evidence.exclusive_ms("idle_host"), evidence.exclusive_ms("idle_latency")
    # What the verdict keeps after the observer effect is what a change can still save.
    share = evidence.verdict.shares.get("overhead", 0.0)
    launches = sum(r.summary.host.launches_per_step for r in evidence.ranks) / len(evidence.ranks)
    return Finding(
        id=ID,
        status=evidence.grade(min(evidence.share(late + latency), share)),
        title=title,
        saving_ms_per_step=evidence.saving(evidence.host_ms()),
        evidence=lines(
            f"{late:.2f} ms {evidence.per} of late launches, {latency:.2f} ms of launch and "
            "dependency latency",
            f"{launches:.0f} launches {evidence.per}",
            f"{evidence.verdict.shares.get('overhead', 0.0):.1%} of the step remain after "
            "correction for "
            "the profiler"
            if evidence.quality.observer_effect is not None
            else "",
            evidence.worst("idle_host", "idle_latency"),
        ),
        advice=(
            'Launch less: `torch.compile`, CUDA graphs (`mode="reduce-overhead"`), fused or '
            "foreach "
            "optimizers, a larger batch; and keep Python out of the inner loop."
        ),
    )

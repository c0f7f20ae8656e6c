"""Does the host launch too slowly?"""

from __future__ import annotations

from statistics import fmean, median

from msgspec import UNSET

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.rule import Answer, inconclusive, rule
from traceprobe.formatting import counted, percent, significant
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

FEWER_LAUNCHES = Changes(speedup={"host": FIXED.fewer_launches}, margin=FIXED.usual_margin)
"""What compiling and CUDA graphs usually make of the host's work; some of it stays."""


@rule(
    "host-overhead",
    title="The CPU does not launch work fast enough",
    title_on_cpu="Much time passes between the operators",
    definition="Idle time per step because the next op was launched late (`idle_host`), or "
    "launched in time and started later (`idle_latency`). The saving is no more of it than what is "
    "left once the profiler's part is taken out.",
    verify="Time the loop without a profiler, then with twice the batch size. If the step hardly "
    "gets longer, the host was the limit.",
)
def host_overhead(evidence: Evidence) -> Answer:
    """Idle GPU because the next kernel was launched late, or launched in time and started late."""
    if not evidence.observed("idle_host", "idle_latency"):
        return inconclusive(
            "the trace has no host rows",
            "Record the CPU too (`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`).",
        )
    late, latency = evidence.exclusive_ms("idle_host"), evidence.exclusive_ms("idle_latency")
    sites = evidence.sites("idle_host")
    # What the verdict keeps after the observer effect is what a change can still save.
    share = evidence.verdict.shares.get("overhead", 0.0)
    if evidence.on_cpu:
        return Answer(
            evidence.grade(min(evidence.share(late), share)),
            [
                f"{evidence.amount(late)} between operators: Python and the framework",
                evidence.worst("idle_host"),
            ],
            evidence.saving(evidence.host_ms(), *HOST_IDLE),
            "Do more in each operator: a larger batch, tensors instead of loops over their "
            "elements, `torch.compile`. Keep Python out of the inner loop.",
            sites,
        )
    launches = fmean(r.summary.host.launches_per_step for r in evidence.ranks)
    grade = evidence.grade(min(evidence.share(late + latency), share))
    corrected = evidence.quality.observer_effect is not None
    return Answer(
        grade,
        [
            f"{significant(late)} ms {evidence.per} of late launches, {significant(latency)} ms "
            "of launch and dependency latency",
            f"{counted(round(launches), 'launch', 'launches')} {evidence.per}",
            f"{percent(share)} of the step remains after correction for the profiler"
            if corrected
            else "",
            _queue(evidence) if grade != "pass" else "",
            evidence.worst("idle_host", "idle_latency"),
        ],
        evidence.saving(evidence.host_ms(), *HOST_IDLE),
        'Launch less: `torch.compile`, CUDA graphs (`mode="reduce-overhead"`), fused or foreach '
        "optimizers, a larger batch. Keep Python out of the inner loop.",
        sites,
        FEWER_LAUNCHES,
    )


def _queue(evidence: Evidence) -> str:
    """How far ahead of the device its host launches, as a phrase; empty where it is not known."""
    known = [(r.summary.launches, r.summary.window_ns) for r in evidence.ranks]
    queues = [(found.queue, window) for found, window in known if found is not UNSET and window]
    if not queues:
        return ""
    starved = fmean(queue.starved_ns / window for queue, window in queues)
    return (
        f"for {percent(starved)} of the time the GPU was idle and nothing was launched ahead; half "
        f"the time at most {median(queue.p50 for queue, _ in queues):.0f} launches were "
        f"outstanding, and never more than {max(queue.longest for queue, _ in queues)}"
    )
